// The walk behind schema_check.h. It follows the order in which llama.cpp's common/json-schema.cpp reads a
// schema: that decides which keywords count and which are passed over.
#include "chat/schema_check.h"

#include "chat/pattern_check.h"

#include <json-schema-to-grammar.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>

namespace headrace {

namespace {

using Json  = nlohmann::ordered_json; // properties are asked for in the schema's own order
using Names = std::span<const std::string_view>;

constexpr size_t MAX_DEPTH      = 32;
constexpr size_t MAX_NODES      = 1000;
constexpr size_t MAX_PROPERTIES = 100;  // of one object: the converter's work grows with their cube
constexpr size_t MAX_NAME       = 200;  // bytes of a property's name
constexpr int    MAX_COUNT      = 1000; // llama.cpp refuses grammars that repeat more than 2000 times
constexpr double MAX_INTEGER    = 999999999999999;

constexpr std::string_view ANNOTATIONS[] = {"title",    "description", "default",   "examples",
                                            "$comment", "$schema",     "$defs",     "definitions",
                                            "readOnly", "writeOnly",   "deprecated"};
constexpr std::string_view TYPES[]   = {"object", "array", "string", "integer", "number", "boolean", "null"};
constexpr std::string_view FORMATS[] = {"date", "time", "date-time", "uuid"};

bool among(Names names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

[[noreturn]] void refuse(const std::string & pointer, const std::string & keyword, const std::string & why) {
    const std::string where = keyword.empty() ? pointer : pointer + "/" + keyword;
    throw Error(ErrorCode::grammar_invalid,
                "the schema cannot be enforced: " + where.substr(0, 400) + " " + why,
                {{"pointer", where.substr(0, 400)}, {"keyword", keyword.substr(0, 100)}});
}

bool has_type(const Json & value, std::string_view type) {
    return type == "object"    ? value.is_object()
           : type == "array"   ? value.is_array()
           : type == "string"  ? value.is_string()
           : type == "number"  ? value.is_number()
           : type == "boolean" ? value.is_boolean()
           : type == "null"    ? value.is_null()
                               : value.is_number() && std::floor(value.get<double>()) == value.get<double>();
}

class Checker {
  public:
    Checker(const Json & root, bool lenient) : root_(root), lenient_(lenient) {}

    void run() { check(root_, "#", 0, {}); }

  private:
    // A place reached without a character of the answer in between, by these references.
    using Chain = std::set<std::string>;

    void check(const Json & node, const std::string & at, size_t depth, const Chain & chain) {
        if (depth > MAX_DEPTH) {
            refuse(at, "", "is nested deeper than " + std::to_string(MAX_DEPTH) + " schemas");
        }
        if (++nodes_ > MAX_NODES) {
            refuse(at, "", "is more than the " + std::to_string(MAX_NODES) + " schemas that one may hold");
        }
        if (!node.is_object()) {
            refuse(at, "", "must be an object");
        }
        if (node.contains("$ref")) {
            allow(node, at, {"$ref"});
            reference(node["$ref"], at, depth, chain);
        } else if (node.contains("oneOf")) {
            allow(node, at, {"oneOf"});
            alternatives(node, "oneOf", at, depth, chain);
            exclusive(node["oneOf"], at);
        } else if (node.contains("anyOf")) {
            allow(node, at, {"anyOf"});
            alternatives(node, "anyOf", at, depth, chain);
        } else {
            const std::vector<std::string> types = read_types(node, at);
            if (node.contains("const") || node.contains("enum")) {
                values(node, at, types);
            } else if (types.empty()) {
                untyped(node, at, depth, chain);
            } else {
                typed(node, at, types, depth, chain);
            }
        }
    }

    // Everything else that stands there would be passed over by the converter.
    void allow(const Json & node, const std::string & at,
               const std::vector<std::string_view> & keywords) const {
        if (lenient_) {
            return;
        }
        for (const auto & [name, value] : node.items()) {
            const bool known = among(ANNOTATIONS, name) || name.starts_with("x-") ||
                               std::find(keywords.begin(), keywords.end(), name) != keywords.end();
            if (!known) {
                refuse(at, name, "is a keyword that is not enforced here");
            }
        }
    }

    void reference(const Json & value, const std::string & at, size_t depth, Chain chain) {
        const std::string ref = value.is_string() ? value.get<std::string>() : "";
        if (!ref.starts_with("#/") || ref.size() > MAX_NAME || ref.find_first_of("~%") != std::string::npos) {
            refuse(at, "$ref", "must refer to a place in the same schema, such as \"#/$defs/name\"");
        }
        if (!chain.insert(ref).second) {
            refuse(at, "$ref", "refers to itself without an end");
        }
        // The converter names its rules like this, and takes two references with one name for the same.
        std::string rule = ref;
        std::replace_if(rule.begin(), rule.end(), [](unsigned char c) { return !std::isalnum(c); }, '-');
        const auto [known, added] = rules_.emplace(rule, ref);
        if (known->second != ref) {
            refuse(at, "$ref", "is not told apart from \"" + known->second + "\"");
        }
        if (added) {
            check(resolve(ref, at), ref, depth + 1, chain);
        }
    }

    const Json & resolve(const std::string & ref, const std::string & at) const {
        const Json * target = &root_;
        size_t       begin  = 2;
        while (begin <= ref.size()) {
            const size_t      end  = std::min(ref.find('/', begin), ref.size());
            const std::string name = ref.substr(begin, end - begin);
            if (target->is_object() && target->contains(name)) {
                target = &target->at(name);
            } else if (target->is_array() && name.size() < 5 && !name.empty() &&
                       name.find_first_not_of("0123456789") == std::string::npos &&
                       std::stoul(name) < target->size()) {
                target = &target->at(std::stoul(name));
            } else {
                refuse(at, "$ref", "refers to \"" + ref + "\", which is not there");
            }
            begin = end + 1;
        }
        return *target;
    }

    void alternatives(const Json & node, const char * keyword, const std::string & at, size_t depth,
                      const Chain & chain) {
        const Json & list = node[keyword];
        if (!list.is_array() || list.empty()) {
            refuse(at, keyword, "must be a list with at least one schema");
        }
        for (size_t i = 0; i < list.size(); i++) {
            check(list[i], at + "/" + keyword + "/" + std::to_string(i), depth + 1, chain);
        }
    }

    // A grammar allows what any alternative allows; oneOf forbids what two of them do.
    void exclusive(const Json & list, const std::string & at) const {
        for (size_t i = 0; !lenient_ && i < list.size(); i++) {
            for (size_t k = i + 1; k < list.size(); k++) {
                if (!disjoint(list[i], list[k])) {
                    refuse(at, "oneOf",
                           "has alternatives that may allow the same answer (" + std::to_string(i) + " and " +
                               std::to_string(k) + "); anyOf says what a grammar does");
                }
            }
        }
    }

    static bool disjoint(const Json & a, const Json & b) {
        const auto kind = [](const Json & schema) {
            const std::string type = schema.contains("type") && schema["type"].is_string()
                                         ? schema["type"].get<std::string>()
                                         : std::string();
            return type == "integer" ? std::string("number") : type;
        };
        const auto constant = [](const Json & schema) { return schema.contains("const"); };
        if (constant(a) && constant(b)) {
            return a["const"] != b["const"];
        }
        if (!kind(a).empty() && !kind(b).empty() && kind(a) != kind(b)) {
            return true;
        }
        const auto tags = [&](const Json & schema, const std::string & name) {
            const Json required = schema.value("required", Json::array());
            return std::find(required.begin(), required.end(), Json(name)) != required.end();
        };
        if (!a.contains("properties") || !b.contains("properties") || !b["properties"].is_object()) {
            return false;
        }
        for (const auto & [name, property] : a["properties"].items()) {
            const Json other = b["properties"].value(name, Json::object());
            if (constant(property) && constant(other) && property["const"] != other["const"] &&
                tags(a, name) && tags(b, name)) {
                return true;
            }
        }
        return false;
    }

    std::vector<std::string> read_types(const Json & node, const std::string & at) const {
        std::vector<std::string> types;
        if (!node.contains("type")) {
            return types;
        }
        const Json list = node["type"].is_array() ? node["type"] : Json::array({node["type"]});
        for (const Json & type : list) {
            const std::string name = type.is_string() ? type.get<std::string>() : "";
            if (!among(TYPES, name)) {
                refuse(at, "type", "must be a JSON type or a list of them");
            }
            if (std::find(types.begin(), types.end(), name) != types.end()) {
                refuse(at, "type", "names a type twice");
            }
            types.push_back(name);
        }
        if (types.empty()) {
            refuse(at, "type", "must name a type");
        }
        return types;
    }

    void values(const Json & node, const std::string & at, const std::vector<std::string> & types) const {
        const bool   constant = node.contains("const");
        const char * keyword  = constant ? "const" : "enum";
        if (!constant && (!node["enum"].is_array() || node["enum"].empty())) {
            refuse(at, keyword, "must be a list with at least one value");
        }
        allow(node, at, {"type", keyword});
        const Json list = constant ? Json::array({node["const"]}) : node["enum"];
        for (const Json & value : list) {
            const bool fits =
                types.empty() || std::any_of(types.begin(), types.end(),
                                             [&](const auto & type) { return has_type(value, type); });
            if (!fits && !lenient_) {
                refuse(at, keyword, "has a value that is not of the given type");
            }
        }
    }

    void untyped(const Json & node, const std::string & at, size_t depth, const Chain & chain) {
        const auto has = [&](const char * keyword) { return node.contains(keyword); };
        if (has("properties") || (has("additionalProperties") && node["additionalProperties"] != true)) {
            typed(node, at, {"object"}, depth, chain);
        } else if (has("allOf")) {
            all_of(node, at, depth, chain);
        } else if (has("items") || has("prefixItems")) {
            typed(node, at, {"array"}, depth, chain);
        } else if (has("pattern") || has("minLength") || has("maxLength") || has("format")) {
            typed(node, at, {"string"}, depth, chain);
        } else {
            allow(node, at, {"additionalProperties"});
        }
    }

    void typed(const Json & node, const std::string & at, const std::vector<std::string> & types,
               size_t depth, const Chain & chain) {
        std::vector<std::string_view> keywords = {"type"};
        const auto                    add      = [&](std::initializer_list<std::string_view> names) {
            keywords.insert(keywords.end(), names);
        };
        const bool all = node.contains("allOf") && types.size() == 1 && (types[0] == "object") &&
                         !node.contains("properties") &&
                         !(node.contains("additionalProperties") && node["additionalProperties"] != true);
        if (all) {
            all_of(node, at, depth, chain);
            return;
        }
        for (const std::string & type : types) {
            if (type == "object") {
                add({"properties", "required", "additionalProperties"});
            } else if (type == "array") {
                add({"items", "prefixItems", "minItems", "maxItems"});
            } else if (type == "string") {
                add({"pattern", "format", "minLength", "maxLength"});
            } else if (type == "integer") {
                add({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"});
            }
        }
        allow(node, at, keywords);
        for (const std::string & type : types) {
            if (type == "object") {
                object(node, at, depth);
            } else if (type == "array") {
                array(node, at, depth);
            } else if (type == "string") {
                string(node, at);
            } else if (type == "integer") {
                integer(node, at, std::find(types.begin(), types.end(), "number") != types.end());
            }
        }
    }

    // One schema that is an object is what the converter does right; it makes all its properties required.
    void all_of(const Json & node, const std::string & at, size_t depth, const Chain & chain) {
        allow(node, at, {"type", "allOf"});
        alternatives(node, "allOf", at, depth, chain);
        const Json * only = &node["allOf"][0];
        for (size_t hops = 0; only->contains("$ref") && hops <= MAX_DEPTH; hops++) {
            only = &resolve((*only)["$ref"].get<std::string>(), at);
        }
        const bool plain = !only->contains("allOf") && !only->contains("anyOf") && !only->contains("oneOf");
        if (!lenient_ && (node["allOf"].size() != 1 || !plain || !only->contains("properties"))) {
            refuse(at, "allOf", "is only enforced with one schema, an object with properties");
        }
    }

    void object(const Json & node, const std::string & at, size_t depth) {
        const Json properties = node.value("properties", Json::object());
        if (!properties.is_object() || properties.size() > MAX_PROPERTIES) {
            refuse(at, "properties",
                   "must be an object with at most " + std::to_string(MAX_PROPERTIES) + " members");
        }
        for (const auto & [name, property] : properties.items()) {
            const std::string where = at + "/properties/" + name;
            if (name.size() > MAX_NAME || name == "*") {
                refuse(where, "", "is a name that a grammar cannot have");
            }
            check(property, where, depth + 1, {});
        }
        const Json required = node.value("required", Json::array());
        for (const Json & name : required) {
            const bool declared = name.is_string() && properties.contains(name.get<std::string>());
            if (!declared && !lenient_) {
                refuse(at, "required",
                       "names " + name.dump().substr(0, 100) + ", which is not among the properties");
            }
        }
        if (!required.is_array()) {
            refuse(at, "required", "must be a list of names");
        }
        const Json more = node.value("additionalProperties", Json(false));
        if (more.is_object()) {
            check(more, at + "/additionalProperties", depth + 1, {});
        } else if (!more.is_boolean()) {
            refuse(at, "additionalProperties", "must be true, false or a schema");
        }
        if (more != false && !properties.empty() && !lenient_) {
            refuse(at, "additionalProperties",
                   "must be false beside properties: a grammar cannot keep other names apart from these");
        }
    }

    void array(const Json & node, const std::string & at, size_t depth) {
        if (node.contains("items") && node.contains("prefixItems") && !lenient_) {
            refuse(at, "prefixItems", "is not enforced beside items");
        }
        const int low  = count(node, "minItems", at, 0);
        const int high = count(node, "maxItems", at, -1);
        if (high >= 0 && high < low) {
            refuse(at, "maxItems", "is less than minItems");
        }
        const char * keyword = node.contains("items") ? "items" : "prefixItems";
        if (!node.contains(keyword)) {
            return;
        }
        const Json & items = node[keyword];
        if (!items.is_array()) {
            check(items, at + "/" + keyword, depth + 1, {});
            return;
        }
        const int size = static_cast<int>(items.size());
        if (!lenient_ && (low > size || (high >= 0 && high < size))) {
            refuse(at, low > size ? "minItems" : "maxItems",
                   "does not fit a list with one schema for each place");
        }
        for (size_t i = 0; i < items.size(); i++) {
            check(items[i], at + "/" + keyword + "/" + std::to_string(i), depth + 1, {});
        }
    }

    void string(const Json & node, const std::string & at) const {
        const int low  = count(node, "minLength", at, 0);
        const int high = count(node, "maxLength", at, -1);
        if (high >= 0 && high < low) {
            refuse(at, "maxLength", "is less than minLength");
        }
        if (lenient_) {
            return;
        }
        const bool sized = node.contains("minLength") || node.contains("maxLength");
        if (node.contains("pattern")) {
            const Json & pattern = node["pattern"];
            const auto   trouble =
                pattern.is_string() ? pattern_trouble(pattern.get<std::string>()) : "must be a string";
            if (!trouble.empty()) {
                refuse(at, "pattern", trouble);
            }
        }
        if (node.contains("format") &&
            !among(FORMATS, node["format"].is_string() ? node["format"].get<std::string>() : "")) {
            refuse(at, "format", "must be date, time, date-time or uuid");
        }
        if (sized + node.contains("pattern") + node.contains("format") > 1) {
            refuse(at, node.contains("pattern") ? "pattern" : "format",
                   "is the only thing that is enforced of a string, and stands beside another");
        }
    }

    void integer(const Json & node, const std::string & at, bool or_number) const {
        const auto bound = [&](const char * inclusive, const char * exclusive) {
            const char * keyword = node.contains(inclusive) ? inclusive : exclusive;
            if (!node.contains(keyword)) {
                return std::nan("");
            }
            if (!node[keyword].is_number() || std::fabs(node[keyword].get<double>()) > MAX_INTEGER) {
                refuse(at, keyword, "must be a number of at most 15 digits");
            }
            if (!lenient_ && ((node.contains(inclusive) && node.contains(exclusive)) || or_number)) {
                refuse(at, exclusive,
                       "is not enforced beside another bound, or for numbers that are not integers");
            }
            return node[keyword].get<double>();
        };
        const double low  = bound("minimum", "exclusiveMinimum");
        const double high = bound("maximum", "exclusiveMaximum");
        if (lenient_) {
            return;
        }
        const double smallest = node.contains("minimum") ? std::ceil(low) : std::floor(low) + 1;
        const double largest  = node.contains("maximum") ? std::floor(high) : std::ceil(high) - 1;
        // Two cases in which the converter's ranges let through what they should not.
        if (std::isnan(high) && smallest > 99) {
            refuse(at, node.contains("minimum") ? "minimum" : "exclusiveMinimum",
                   "is only enforced with a maximum beside it");
        }
        if (std::isnan(low) && largest < 0) {
            refuse(at, node.contains("maximum") ? "maximum" : "exclusiveMaximum",
                   "is only enforced with a minimum beside it");
        }
        if (largest < smallest) {
            refuse(at, node.contains("maximum") ? "maximum" : "exclusiveMaximum", "leaves no integer");
        }
    }

    static int count(const Json & node, const char * keyword, const std::string & at, int missing) {
        if (!node.contains(keyword)) {
            return missing;
        }
        const Json & value = node[keyword];
        if (!value.is_number_integer() || value < 0 || value > MAX_COUNT) {
            refuse(at, keyword, "must be a whole number from 0 to " + std::to_string(MAX_COUNT));
        }
        return value.get<int>();
    }

    const Json &                       root_;
    bool                               lenient_;
    size_t                             nodes_ = 0;
    std::map<std::string, std::string> rules_; // rule → reference
};

} // namespace

void check_schema(const std::string & schema, bool lenient) {
    Checker(Json::parse(schema), lenient).run();
}

std::string mend_grammar(std::string grammar) {
    const std::string loose = "dot ::= [^\\x0A\\x0D]\n";
    const size_t      at    = grammar.find(loose);
    if (at != std::string::npos && (at == 0 || grammar[at - 1] == '\n')) {
        grammar.replace(at, loose.size(), "dot ::= [^\"\\\\\\x7F\\x00-\\x1F]\n");
    }
    return grammar;
}

std::string schema_grammar(const std::string & schema) {
    check_schema(schema);
    try {
        return mend_grammar(json_schema_to_grammar(common_json::parse(schema)));
    } catch (const std::exception & error) {
        throw Error(ErrorCode::grammar_invalid,
                    std::string("the schema cannot be enforced: ") + error.what());
    }
}

} // namespace headrace
