// Comparing and reporting behind gpu_self_test.h.
#include "engine/gpu_self_test.h"

#include "engine/error.h"
#include "engine/op_inputs.h"
#include "engine/op_trial.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace headrace {

namespace {

// Of the normalised mean square error. A value that is wrong altogether adds one by the number of values, a
// factor of 1.01 adds 1e-4; what is lost in rounding is far below.
double nmse_limit(const GraphOp & op) {
    const ggml_type output = op.output().type;
    if (ggml_is_quantized(output)) {
        // A value halfway between two steps may go to either; by the steps, 1/127 or 1/8 of a block's largest
        // value. llama.cpp's test-backend-ops allows as much, to SET_ROWS and CPY.
        return output == GGML_TYPE_Q8_0 ? 1e-4 : 1e-2;
    }
    switch (op.last().op) {
        // As in llama.cpp's test-backend-ops. The CPU rounds activations to eight bits for quantised weights
        // (2.3e-5 of N(0,1)), ggml-webgpu does with its MMVQ kernels; the others turn weights into f16, and those
        // on subgroup matrices add in f16.
        case GGML_OP_MUL_MAT:
        case GGML_OP_MUL_MAT_ID:
        case GGML_OP_CONV_2D:
        case GGML_OP_CONV_2D_DW:
        case GGML_OP_FLASH_ATTN_EXT: return 5e-4;
        // test-backend-ops has 1e-7. WGSL promises sin() and cos() to 2^-11 (up to 2.4e-7 here), lets conversions
        // to f16 truncate (1.6e-7), and ggml's CPU looks GELU up in a table of f16 (1e-7).
        default: return 1e-6;
    }
}

// Ten standard deviations: of 100,000 normally distributed errors, the largest is at 4.4.
double peak_limit(double nmse) {
    return 10 * std::sqrt(nmse);
}

// Errors that have nothing to do with the values leave the factor at 1, so that it shows a wrong scale under far
// larger errors. Of few values it is only as exact as they are many; errors of rounding are 2e-5 where 5e-4 are
// allowed.
double gain_limit(double nmse, size_t count) {
    return std::max(5e-3, 5 * std::sqrt(nmse / 25 / static_cast<double>(count)));
}

bool is_whole_number(ggml_type type) {
    return type == GGML_TYPE_I8 || type == GGML_TYPE_I16 || type == GGML_TYPE_I32 || type == GGML_TYPE_I64;
}

template <class Value> Value read(const uint8_t * bytes) {
    Value value;
    std::memcpy(&value, bytes, sizeof(value));
    return value;
}

double read_one(ggml_type type, const uint8_t * bytes) {
    switch (type) {
        case GGML_TYPE_F32: return read<float>(bytes);
        case GGML_TYPE_F16: return ggml_fp16_to_fp32(read<ggml_fp16_t>(bytes));
        case GGML_TYPE_BF16: return ggml_bf16_to_fp32(read<ggml_bf16_t>(bytes));
        case GGML_TYPE_I8: return read<int8_t>(bytes);
        case GGML_TYPE_I16: return read<int16_t>(bytes);
        case GGML_TYPE_I32: return read<int32_t>(bytes);
        default: return static_cast<double>(read<int64_t>(bytes));
    }
}

bool is_unwritten(ggml_type type, const uint8_t * bytes) {
    for (size_t i = 0; i < ggml_type_size(type); i++) {
        if (bytes[i] != UNWRITTEN[i % 2]) {
            return false;
        }
    }
    return true;
}

struct Values {
    std::vector<double> values; // in the order of their indices
    std::vector<bool>   unwritten;
};

Values read_values(const Operand & operand, std::span<const uint8_t> block) {
    Values             read;
    std::vector<float> row(static_cast<size_t>(operand.ne[0]));
    for (int64_t i = 0; i < operand.ne[1] * operand.ne[2] * operand.ne[3]; i++) {
        const auto at = [&](int64_t index, size_t dimension) {
            return static_cast<size_t>(index) * operand.nb[dimension];
        };
        const auto start = block.data() + operand.offset + at(i % operand.ne[1], 1) +
                           at(i / operand.ne[1] % operand.ne[2], 2) +
                           at(i / operand.ne[1] / operand.ne[2], 3);
        if (ggml_is_quantized(operand.type)) {
            ggml_get_type_traits(operand.type)->to_float(start, row.data(), operand.ne[0]);
            read.values.insert(read.values.end(), row.begin(), row.end());
            read.unwritten.resize(read.values.size());
            continue;
        }
        for (int64_t j = 0; j < operand.ne[0]; j++) {
            const uint8_t * place = start + at(j, 0);
            read.values.push_back(read_one(operand.type, place));
            read.unwritten.push_back(is_unwritten(operand.type, place));
        }
    }
    return read;
}

// Nobody has promised the order of the best.
void sort_rows(Values & values, int64_t length) {
    for (size_t i = 0; i < values.values.size(); i += static_cast<size_t>(length)) {
        const auto row = values.values.begin() + static_cast<std::ptrdiff_t>(i);
        std::sort(row, row + length);
    }
}

std::string index_text(const Operand & operand, size_t index) {
    std::string text;
    size_t      rest = index;
    for (const int64_t count : operand.ne) {
        text += text.empty() ? "[" : ",";
        text += std::to_string(rest % static_cast<size_t>(count));
        rest /= static_cast<size_t>(count);
    }
    return text + "]";
}

std::string figure(double value) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.6g", value);
    return text;
}

bool same_or_finite(double got, double expected) {
    if (std::isfinite(got) && std::isfinite(expected)) {
        return true;
    }
    return std::isnan(expected) ? std::isnan(got) : got == expected;
}

class Comparison {
  public:
    Comparison(const GraphOp & op, const Values & device, const Values & reference)
        : op_(op), device_(device), reference_(reference), limit_(nmse_limit(op)) {
        verdict_.signature = signature(op);
    }

    OpVerdict run() {
        verdict_.numbers     = std::count_if(reference_.values.begin(), reference_.values.end(),
                                             [](double value) { return std::isfinite(value); });
        const auto is_left   = [&](size_t i) { return device_.unwritten[i] && !reference_.unwritten[i]; };
        const auto no_number = [&](size_t i) { return !same_or_finite(got(i), expected(i)); };
        if (count("unwritten", is_left) || count("numbers", no_number)) {
            return verdict_;
        }
        if (is_whole_number(op_.output().type)) {
            count("values", [&](size_t i) { return got(i) != expected(i); });
            return verdict_;
        }
        measure();
        return verdict_;
    }

  private:
    double got(size_t i) const { return device_.values[i]; }
    double expected(size_t i) const { return reference_.values[i]; }

    // Whether some value is wrong in this way.
    template <class Wrong> bool count(const char * name, Wrong wrong) {
        size_t found = 0;
        for (size_t i = 0; i < device_.values.size(); i++) {
            if (wrong(i) && found++ == 0) {
                point_at(i);
            }
        }
        verdict_.measure = name;
        verdict_.error   = static_cast<double>(found);
        verdict_.ok      = found == 0;
        return found > 0;
    }

    void point_at(size_t i) {
        verdict_.where    = index_text(op_.output(), i);
        verdict_.got      = got(i);
        verdict_.expected = expected(i);
    }

    void measure() {
        double difference = 0, square = 0, product = 0, peak = 0;
        size_t numbers = 0, farthest = 0;
        for (size_t i = 0; i < device_.values.size(); i++) {
            if (!std::isfinite(expected(i))) {
                continue; // and so is the other
            }
            const double apart = got(i) - expected(i);
            difference += apart * apart;
            square += expected(i) * expected(i);
            product += got(i) * expected(i);
            numbers++;
            if (std::abs(apart) > peak) {
                peak     = std::abs(apart);
                farthest = i;
            }
        }
        if (numbers == 0) {
            return;
        }
        // Where all is zero there is nothing to divide by.
        const double unit = square > 0 ? square : static_cast<double>(numbers);
        const double rms  = std::sqrt(unit / static_cast<double>(numbers));
        verdict_.nmse     = difference / unit;
        const bool fine =
            judge("peak", peak / rms, peak_limit(limit_)) &&
            judge("gain", square > 0 ? std::abs(product / square - 1) : 0, gain_limit(limit_, numbers)) &&
            judge("nmse", verdict_.nmse, limit_);
        if (!fine) {
            point_at(first_far(3 * std::sqrt(limit_) * rms, farthest));
        }
    }

    bool judge(const char * name, double error, double limit) {
        verdict_.measure = name;
        verdict_.error   = error;
        verdict_.limit   = limit;
        verdict_.ok      = error <= limit; // not if it is no number
        return verdict_.ok;
    }

    size_t first_far(double distance, size_t otherwise) const {
        for (size_t i = 0; i < device_.values.size(); i++) {
            if (std::abs(got(i) - expected(i)) > distance) {
                return i;
            }
        }
        return otherwise;
    }

    const GraphOp & op_;
    const Values &  device_;
    const Values &  reference_;
    double          limit_;
    OpVerdict       verdict_;
};

double now_ms() {
    using namespace std::chrono;
    return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

Error mismatch(const OpVerdict & verdict, const std::string & device) {
    return Error(ErrorCode::gpu_mismatch, device + " computes something else than the CPU: " + verdict.text(),
                 {{"op", verdict.signature},
                  {"measure", verdict.measure},
                  {"error", verdict.error},
                  {"limit", verdict.limit},
                  {"nmse", verdict.nmse},
                  {"index", verdict.where},
                  {"got", figure(verdict.got)}, // JSON has no infinity
                  {"expected", figure(verdict.expected)}});
}

} // namespace

std::string OpVerdict::text() const {
    std::string text = signature + ": " + measure + " " + figure(error) + (ok ? " within " : " past ") +
                       figure(limit) + ", nmse " + figure(nmse);
    if (!where.empty()) {
        text += "; at " + where + " it is " + figure(got) + ", not " + figure(expected);
    }
    return text;
}

OpVerdict compare_outputs(const GraphOp & op, std::span<const uint8_t> device,
                          std::span<const uint8_t> reference) {
    Values got = read_values(op.output(), device), expected = read_values(op.output(), reference);
    if (op.last().op == GGML_OP_TOP_K) {
        sort_rows(got, op.output().ne[0]);
        sort_rows(expected, op.output().ne[0]);
    }
    return Comparison(op, got, expected).run();
}

std::optional<OpVerdict> try_op(const GraphOp & op, ggml_backend_t device, ggml_backend_t reference) {
    if (!has_inputs(op)) {
        return std::nullopt;
    }
    OpTrial tested(op, device);
    if (!tested.is_supported()) {
        return std::nullopt;
    }
    const std::vector<std::vector<uint8_t>> inputs   = make_inputs(op);
    const std::vector<uint8_t>              expected = OpTrial(op, reference).compute(inputs);
    return compare_outputs(op, tested.compute(inputs), expected);
}

SelfTestReport run_self_test(std::span<const GraphOp> ops, ggml_backend_t device, ggml_backend_t reference,
                             const std::set<std::string> & known) {
    const double          start = now_ms();
    SelfTestReport        report;
    double                nearest = -1;
    std::set<std::string> seen;
    for (const GraphOp & op : ops) {
        const std::string name = signature(op);
        if (!seen.insert(name).second) {
            continue;
        }
        if (known.count(name) > 0) {
            report.known++;
            report.proven.push_back(name);
            continue;
        }
        const std::optional<OpVerdict> verdict = try_op(op, device, reference);
        if (!verdict) {
            report.unchecked.push_back(name);
            continue;
        }
        if (!verdict->ok) {
            throw mismatch(*verdict, ggml_backend_name(device));
        }
        report.tested++;
        report.proven.push_back(name);
        const double part = verdict->limit > 0 ? verdict->nmse / verdict->limit : 0;
        if (part > nearest) {
            nearest            = part;
            report.worst_op    = name;
            report.worst_error = verdict->nmse;
        }
    }
    report.ms = now_ms() - start;
    return report;
}

} // namespace headrace
