// The data behind op_inputs.h.
#include "engine/op_inputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>
#include <optional>

namespace headrace {

namespace {

// SplitMix64 and Box-Muller: the standard library's distributions differ from platform to platform.
class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}

    uint64_t next() {
        uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
        z          = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z          = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
    }

    // Above 0, up to 1.
    double unit() { return static_cast<double>((next() >> 11) + 1) * 0x1p-53; }

    int64_t below(int64_t limit) {
        return static_cast<int64_t>(next() % static_cast<uint64_t>(std::max<int64_t>(limit, 1)));
    }

    float normal() {
        return static_cast<float>(std::sqrt(-2 * std::log(unit())) * std::cos(2 * std::numbers::pi * unit()));
    }

  private:
    uint64_t state_;
};

// What an input means to its operation.
enum class Meaning {
    activation,   // normally distributed
    weight,       // likewise, and small
    positive,     // at least 0.1
    negative,     // at most -0.1
    divisor,      // at least 0.1 away from zero
    mask,         // 0 or -inf
    position,     // of tokens
    row,          // index of a row of another input
    distinct_row, // likewise, none twice
    expert,       // index of an expert, none twice for a token
    whole_number  // whatever it is
};

struct Purpose {
    Meaning meaning = Meaning::activation;
    int64_t limit   = 0; // of indices
};

bool is_index(ggml_type type) {
    return type == GGML_TYPE_I32 || type == GGML_TYPE_I64;
}

Purpose purpose(const GraphOp & op, size_t step, size_t place) {
    const auto      source  = [&](size_t other) -> const Operand & { return *op.source(step, other); };
    const Operand & operand = source(place);
    const Operand & output  = op.operands[op.steps[step].output];
    const auto      usual   = Purpose{is_index(operand.type)            ? Meaning::whole_number
                                      : ggml_is_quantized(operand.type) ? Meaning::weight
                                                                        : Meaning::activation};
    switch (op.steps[step].op) {
        case GGML_OP_MUL_MAT: return place == 0 ? Purpose{Meaning::weight} : usual;
        case GGML_OP_MUL_MAT_ID:
            return place == 0   ? Purpose{Meaning::weight}
                   : place == 2 ? Purpose{Meaning::expert, source(0).ne[2]}
                                : usual;
        case GGML_OP_ADD_ID: return place == 2 ? Purpose{Meaning::row, source(1).ne[1]} : usual;
        case GGML_OP_GET_ROWS: return place == 1 ? Purpose{Meaning::row, source(0).ne[1]} : usual;
        case GGML_OP_SET_ROWS: return place == 1 ? Purpose{Meaning::distinct_row, output.ne[1]} : Purpose{};
        case GGML_OP_ROPE:
            return place == 1   ? Purpose{Meaning::position, 512}
                   : place == 2 ? Purpose{Meaning::positive}
                                : usual;
        case GGML_OP_SOFT_MAX: return place == 1 ? Purpose{Meaning::mask} : usual;
        case GGML_OP_FLASH_ATTN_EXT: return place == 3 ? Purpose{Meaning::mask} : usual;
        case GGML_OP_DIV: return place == 1 ? Purpose{Meaning::divisor} : usual;
        case GGML_OP_LOG:
        case GGML_OP_SQRT: return {Meaning::positive};
        case GGML_OP_SSM_SCAN: // state, x, dt, A, B, C, ids
            return place == 3   ? Purpose{Meaning::negative}
                   : place == 6 ? Purpose{Meaning::row, source(0).ne[3]}
                                : usual;
        case GGML_OP_GATED_DELTA_NET: // q, k, v, gate, beta, state
            return place == 3 ? Purpose{Meaning::negative} : place == 4 ? Purpose{Meaning::positive} : usual;
        default: return usual;
    }
}

// Types whose quantisation searches, for up to a minute for one small matrix. Any bits are values of theirs.
bool takes_long(ggml_type type) {
    switch (type) {
        case GGML_TYPE_IQ1_S:
        case GGML_TYPE_IQ1_M:
        case GGML_TYPE_IQ2_XXS:
        case GGML_TYPE_IQ2_XS:
        case GGML_TYPE_IQ2_S:
        case GGML_TYPE_IQ3_XXS:
        case GGML_TYPE_IQ3_S: return true;
        default: return false;
    }
}

// Any bits but for the block's scale, which must be no infinity.
void write_block(ggml_type type, uint8_t * block, Random & random) {
    const size_t size = ggml_type_size(type);
    for (size_t i = 0; i < size; i++) {
        block[i] = static_cast<uint8_t>(random.next());
    }
    const ggml_fp16_t scale = ggml_fp32_to_fp16(0.01f);
    if (type != GGML_TYPE_IQ1_M) {
        std::memcpy(block, &scale, sizeof(scale)); // the first of the block's members
        return;
    }
    // Four bits in each of the last four halfwords.
    for (size_t i = 0; i < 4; i++) {
        uint8_t & high = block[size - 8 + 2 * i + 1];
        high           = static_cast<uint8_t>((high & 0x0F) | ((scale >> (4 * i) & 0xF) << 4));
    }
}

// Writes an operand's elements into its block, row by row.
class Writer {
  public:
    Writer(const GraphOp & op, const Operand & operand, Purpose purpose, std::vector<uint8_t> & block,
           Random & random)
        : op_(op), operand_(operand), purpose_(purpose), block_(block), random_(random) {}

    void write() {
        for (int64_t i3 = 0; i3 < operand_.ne[3]; i3++) {
            for (int64_t i2 = 0; i2 < operand_.ne[2]; i2++) {
                for (int64_t i1 = 0; i1 < operand_.ne[1]; i1++) {
                    uint8_t * row =
                        block_.data() + operand_.offset + static_cast<size_t>(i1) * operand_.nb[1] +
                        static_cast<size_t>(i2) * operand_.nb[2] + static_cast<size_t>(i3) * operand_.nb[3];
                    if (is_index(operand_.type)) {
                        write_whole(row, whole_numbers());
                    } else {
                        write_numbers(row, numbers(i1));
                    }
                }
            }
        }
    }

  private:
    std::vector<int64_t> whole_numbers() {
        std::vector<int64_t> values(static_cast<size_t>(operand_.ne[0]));
        const bool           distinct =
            purpose_.meaning == Meaning::distinct_row || purpose_.meaning == Meaning::expert;
        if (distinct) {
            return some_of(static_cast<size_t>(purpose_.limit), values.size());
        }
        for (int64_t & value : values) {
            value = random_.below(purpose_.limit ? purpose_.limit : 100);
        }
        return values;
    }

    // A part of 0 to limit - 1, in random order.
    std::vector<int64_t> some_of(size_t limit, size_t count) {
        std::vector<int64_t> all(std::max(limit, count));
        std::iota(all.begin(), all.end(), 0);
        for (size_t i = 0; i < count; i++) {
            std::swap(all[i],
                      all[i + static_cast<size_t>(random_.below(static_cast<int64_t>(all.size() - i)))]);
        }
        all.resize(count);
        return all;
    }

    std::vector<float> numbers(int64_t row) {
        std::vector<float> values(static_cast<size_t>(operand_.ne[0]));
        for (size_t i = 0; i < values.size(); i++) {
            values[i] = purpose_.meaning == Meaning::mask ? mask(row, i) : number();
        }
        return values;
    }

    float number() {
        const float value = random_.normal();
        switch (purpose_.meaning) {
            case Meaning::weight: return 0.05f * value;
            case Meaning::positive: return 0.1f + std::abs(value);
            case Meaning::negative: return -0.1f - std::abs(value);
            case Meaning::divisor: return value + (value < 0 ? -0.1f : 0.1f);
            default: return value;
        }
    }

    // A later row sees a little more; nobody sees the last quarter, as in a cache that is not full, nor a stretch
    // of whole tiles before it; and some of the rest is hidden as other sequences' tokens are.
    float mask(int64_t row, size_t column) {
        const size_t length  = static_cast<size_t>(operand_.ne[0]);
        const bool   visible = column < 3 * length / 4 && !(column >= length / 4 && column < length / 2) &&
                               column <= length / 2 + static_cast<size_t>(row) && random_.below(4) != 0;
        if (column != 0 && !visible) {
            return -INFINITY;
        }
        const bool slopes = op_.last().params[1] != 0; // ALiBi: distances
        return slopes ? -static_cast<float>(random_.below(32)) : 0.0f;
    }

    void write_whole(uint8_t * row, const std::vector<int64_t> & values) {
        for (size_t i = 0; i < values.size(); i++) {
            const int32_t narrow = static_cast<int32_t>(values[i]);
            const bool    wide   = operand_.type == GGML_TYPE_I64;
            std::memcpy(row + i * operand_.nb[0], wide ? static_cast<const void *>(&values[i]) : &narrow,
                        wide ? sizeof(int64_t) : sizeof(int32_t));
        }
    }

    void write_numbers(uint8_t * row, const std::vector<float> & values) {
        if (takes_long(operand_.type)) {
            for (size_t i = 0; i < values.size() / static_cast<size_t>(ggml_blck_size(operand_.type)); i++) {
                write_block(operand_.type, row + i * operand_.nb[0], random_);
            }
            return;
        }
        if (ggml_is_quantized(operand_.type)) {
            const std::vector<float> importance(values.size(), 1.0f);
            ggml_quantize_chunk(operand_.type, values.data(), row, 0, 1, operand_.ne[0],
                                ggml_quantize_requires_imatrix(operand_.type) ? importance.data() : nullptr);
            return;
        }
        for (size_t i = 0; i < values.size(); i++) {
            uint8_t * place = row + i * operand_.nb[0];
            if (operand_.type == GGML_TYPE_F16) {
                const ggml_fp16_t half = ggml_fp32_to_fp16(values[i]);
                std::memcpy(place, &half, sizeof(half));
            } else if (operand_.type == GGML_TYPE_BF16) {
                const ggml_bf16_t half = ggml_fp32_to_bf16(values[i]);
                std::memcpy(place, &half, sizeof(half));
            } else {
                std::memcpy(place, &values[i], sizeof(float));
            }
        }
    }

    const GraphOp &        op_;
    const Operand &        operand_;
    Purpose                purpose_;
    std::vector<uint8_t> & block_;
    Random &               random_;
};

bool is_writable(ggml_type type) {
    return type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16 || is_index(type) ||
           ggml_is_quantized(type);
}

} // namespace

bool has_inputs(const GraphOp & op) {
    for (const OpStep & step : op.steps) {
        switch (step.op) {
            case GGML_OP_ADD:
            case GGML_OP_SUB:
            case GGML_OP_MUL:
            case GGML_OP_DIV:
            case GGML_OP_ADD_ID:
            case GGML_OP_CONCAT:
            case GGML_OP_REPEAT:
            case GGML_OP_CPY:
            case GGML_OP_CONT:
            case GGML_OP_SET:
            case GGML_OP_SET_ROWS:
            case GGML_OP_GET_ROWS:
            case GGML_OP_MUL_MAT:
            case GGML_OP_MUL_MAT_ID:
            case GGML_OP_FLASH_ATTN_EXT:
            case GGML_OP_RMS_NORM:
            case GGML_OP_NORM:
            case GGML_OP_L2_NORM:
            case GGML_OP_ROPE:
            case GGML_OP_GLU:
            case GGML_OP_SCALE:
            case GGML_OP_SOFT_MAX:
            case GGML_OP_UNARY:
            case GGML_OP_CLAMP:
            case GGML_OP_FILL:
            case GGML_OP_LOG:
            case GGML_OP_SQR:
            case GGML_OP_SQRT:
            case GGML_OP_SIN:
            case GGML_OP_COS:
            case GGML_OP_TRI:
            case GGML_OP_DIAG:
            case GGML_OP_SSM_CONV:
            case GGML_OP_SSM_SCAN:
            case GGML_OP_GATED_DELTA_NET:
            case GGML_OP_PAD:
            case GGML_OP_ARGMAX:
            case GGML_OP_ARGSORT:
            case GGML_OP_TOP_K:
            case GGML_OP_CUMSUM:
            case GGML_OP_SUM:
            case GGML_OP_SUM_ROWS:
            case GGML_OP_CONV_2D:
            case GGML_OP_CONV_2D_DW:
            case GGML_OP_IM2COL:
            case GGML_OP_UPSCALE: break;
            default: return false;
        }
    }
    return std::all_of(op.operands.begin(), op.operands.end(),
                       [](const Operand & operand) { return is_writable(operand.type); });
}

std::vector<std::vector<uint8_t>> make_inputs(const GraphOp & op) {
    std::vector<std::vector<uint8_t>> blocks(op.blocks);
    for (const Operand & operand : op.operands) {
        std::vector<uint8_t> & block = blocks[operand.block];
        // WebGPU writes buffers in units of four bytes.
        block.resize(std::max(block.size(), (operand.offset + operand.bytes() + 3) / 4 * 4));
    }
    for (std::vector<uint8_t> & block : blocks) {
        for (size_t i = 0; i < block.size(); i++) {
            block[i] = UNWRITTEN[i % 2];
        }
    }
    std::vector<bool> written(op.operands.size());
    for (size_t step = 0; step < op.steps.size(); step++) {
        for (size_t place = 0; place < GGML_MAX_SRC; place++) {
            const Operand * operand = op.source(step, place);
            const size_t    index   = static_cast<size_t>(op.steps[step].sources[place]);
            const bool      made    = operand && step > 0 && index == op.steps[step - 1].output;
            if (operand && !made && !written[index]) {
                Random random(index + 1);
                Writer(op, *operand, purpose(op, step, place), blocks[operand->block], random).write();
                written[index] = true;
            }
        }
    }
    return blocks;
}

} // namespace headrace
