// What a schema lets through, and what is refused because a grammar would not hold an answer to it (case G8).
//
// Accepted schemas are put to the test with llama.cpp's own grammar engine: texts that conform are taken,
// texts that do not are not.
#include "chat/schema_check.h"

#include <doctest/doctest.h>
#include <json-schema-to-grammar.h>
#include <src/llama-grammar.h>

#include <memory>

using namespace headrace;

namespace {

// Whether the whole text is one that the grammar allows.
bool matches(const std::string & grammar, const std::u32string & text) {
    std::unique_ptr<llama_grammar, decltype(&llama_grammar_free_impl)> engine(
        llama_grammar_init_impl(nullptr, grammar.c_str(), "root", false, nullptr, 0, nullptr, 0),
        llama_grammar_free_impl);
    REQUIRE_MESSAGE(engine, grammar);
    for (const char32_t character : text) {
        if (llama_grammar_get_stacks(engine.get()).empty()) {
            return false;
        }
        llama_grammar_accept(engine.get(), character);
    }
    for (const auto & stack : llama_grammar_get_stacks(engine.get())) {
        if (stack.empty()) {
            return true;
        }
    }
    return false;
}

struct Enforced {
    const char *                schema;
    std::vector<std::u32string> conform;
    std::vector<std::u32string> violate;
};

const Enforced ENFORCED[] = {
    {R"({})", {U"1", U"\"a\"", U"[{}]"}, {U"", U"nope"}},
    {R"({"type": "object"})", {U"{}", U"{\"a\": [1]}"}, {U"[]", U"{\"a\"}"}},
    {R"({"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string"}}, "required": ["a", "b"]})",
     {U"{\"b\": 1, \"a\": \"x\"}"},
     {U"{\"b\": 1}", U"{\"a\": \"x\"}", U"{}", U"{\"b\": 1, \"a\": \"x\", \"c\": 1}",
      U"{\"b\": 1.5, \"a\": \"x\"}"}},
    {R"({"properties": {"a": {"type": "null"}}, "additionalProperties": false})",
     {U"{}", U"{\"a\": null}"},
     {U"{\"a\": 1}", U"{\"b\": null}"}},
    {R"({"type": "object", "additionalProperties": {"type": "boolean"}})",
     {U"{}", U"{\"x\": true, \"y\": false}"},
     {U"{\"x\": 1}"}},
    {R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3})",
     {U"[1, 2]", U"[1, 2, 3]"},
     {U"[1]", U"[1, 2, 3, 4]", U"[\"1\", 2]"}},
    {R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]})",
     {U"[1, \"a\"]"},
     {U"[1]", U"[\"a\", 1]", U"[1, \"a\", 2]"}},
    {R"({"type": "string", "minLength": 2, "maxLength": 3})",
     {U"\"ab\"", U"\"жжж\""},
     {U"\"a\"", U"\"abcd\""}},
    {R"({"type": "string", "pattern": "^[a-z]{2}-[0-9]+$"})",
     {U"\"ab-12\""},
     {U"\"ab-\"", U"\"AB-1\"", U"\"ab-1 \""}},
    {R"({"type": "string", "pattern": "^a.c$"})",
     {U"\"abc\"", U"\"aжc\""},
     {U"\"a\"c\"", U"\"a\\c\"", U"\"ac\""}},
    {R"({"type": "string", "pattern": "^(?:yes|no)(!{1,2})?$"})",
     {U"\"yes\"", U"\"no!!\""},
     {U"\"yesno\"", U"\"no!!!\"", U"yes"}},
    {R"({"type": "string", "pattern": "^a[.]*\\.b{3,}[é-]?$"})",
     {U"\"a...bbb\"", U"\"a.bbbbé\""},
     {U"\"abbb\"", U"\"a.bb\""}},
    {R"({"type": "string", "format": "date"})", {U"\"2026-11-30\""}, {U"\"2026-13-01\"", U"\"today\""}},
    {R"({"type": "string", "format": "time"})", {U"\"10:20:30Z\""}, {U"\"25:00:00Z\""}},
    {R"({"type": "string", "format": "date-time"})", {U"\"2026-11-30T10:20:30Z\""}, {U"\"2026-11-30\""}},
    {R"({"type": "string", "format": "uuid"})",
     {U"\"01234567-89ab-cdef-0123-456789abcdef\""},
     {U"\"01234567\""}},
    {R"({"type": "integer", "minimum": -5, "maximum": 120})",
     {U"-5", U"0", U"99", U"120"},
     {U"-6", U"121", U"007", U"1.5", U"999"}},
    {R"({"type": "integer", "exclusiveMinimum": 98})", {U"99", U"100", U"4321"}, {U"98", U"9", U"-100"}},
    {R"({"type": "integer", "minimum": 25})", {U"25", U"30", U"100", U"4321"}, {U"24", U"9", U"-25", U"025"}},
    {R"({"type": "integer", "minimum": 0})", {U"0", U"10"}, {U"-1", U"01"}},
    {R"({"type": "integer", "minimum": 1000, "maximum": 99999})",
     {U"1000", U"54321"},
     {U"999", U"100", U"100000"}},
    {R"({"type": "integer", "maximum": 5})", {U"5", U"-12"}, {U"6", U"-05", U"50"}},
    {R"({"type": "integer", "minimum": -100, "maximum": -7})",
     {U"-7", U"-100"},
     {U"-6", U"7", U"-101", U"-07"}},
    {R"({"type": "number"})", {U"1", U"-1.5e3"}, {U"\"1\"", U"01"}},
    {R"({"type": ["string", "null"]})", {U"null", U"\"a\""}, {U"1"}},
    {R"({"type": ["integer", "null"], "minimum": 3, "maximum": 5})", {U"null", U"4"}, {U"6"}},
    {R"({"enum": ["a", 1, null, {"b": []}]})", {U"\"a\"", U"1", U"null", U"{\"b\":[]}"}, {U"\"b\"", U"2"}},
    {R"({"type": "string", "const": "fixed"})", {U"\"fixed\""}, {U"\"other\""}},
    {R"({"anyOf": [{"type": "integer"}, {"type": "boolean"}]})", {U"1", U"true"}, {U"null"}},
    {R"({"oneOf": [{"type": "integer"}, {"type": "string"}]})", {U"1", U"\"a\""}, {U"null"}},
    {R"({"oneOf": [{"properties": {"kind": {"const": "a"}}, "required": ["kind"]},
                   {"properties": {"kind": {"const": "b"}}, "required": ["kind"]}]})",
     {U"{\"kind\": \"a\"}", U"{\"kind\": \"b\"}"},
     {U"{\"kind\": \"c\"}", U"{}"}},
    {R"({"$defs": {"p": {"type": "object", "properties": {"x": {"type": "integer"}}}}, "allOf": [{"$ref": "#/$defs/p"}]})",
     {U"{\"x\": 1}"},
     {U"{\"x\": \"1\"}"}},
    {R"({"$defs": {"tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}}}}, "$ref": "#/$defs/tree"})",
     {U"{}", U"{\"left\": {\"left\": {}}}"},
     {U"{\"left\": 1}", U"{\"right\": {}}"}},
};

struct Refused {
    const char * schema;
    const char * pointer;
};

const Refused REFUSED[] = {
    {R"([])", "#"},
    {R"({"properties": {"a": true}})", "#/properties/a"},
    {R"({"type": "text"})", "#/type"},
    {R"({"type": []})", "#/type"},
    {R"({"type": ["string", "string"]})", "#/type"},
    {R"({"not": {"type": "string"}})", "#/not"},
    {R"({"type": "object", "if": {}, "then": {}})", "#/if"},
    {R"({"type": "object", "patternProperties": {}})", "#/patternProperties"},
    {R"({"type": "object", "minProperties": 1})", "#/minProperties"},
    {R"({"type": "object", "propertyNames": {}})", "#/propertyNames"},
    {R"({"type": "object", "properties": {"a": {}}, "required": ["b"]})", "#/required"},
    {R"({"type": "object", "properties": {"a": {}}, "additionalProperties": true})",
     "#/additionalProperties"},
    {R"({"type": "object", "properties": {"*": {}}})", "#/properties/*"},
    {R"({"type": "object", "properties": 1})", "#/properties"},
    {R"({"type": "array", "uniqueItems": true})", "#/uniqueItems"},
    {R"({"type": "array", "contains": {}})", "#/contains"},
    {R"({"type": "array", "items": {}, "prefixItems": [{}]})", "#/prefixItems"},
    {R"({"type": "array", "items": [{}, {}], "minItems": 3})", "#/minItems"},
    {R"({"type": "array", "minItems": 3, "maxItems": 2})", "#/maxItems"},
    {R"({"type": "array", "maxItems": 100000})", "#/maxItems"},
    {R"({"type": "array", "maxItems": 1.5})", "#/maxItems"},
    {R"({"type": "number", "minimum": 1})", "#/minimum"},
    {R"({"type": "integer", "multipleOf": 3})", "#/multipleOf"},
    {R"({"type": "integer", "minimum": 100})", "#/minimum"},
    {R"({"type": "integer", "maximum": -1})", "#/maximum"},
    {R"({"type": "integer", "minimum": 5, "exclusiveMinimum": 6, "maximum": 9})", "#/exclusiveMinimum"},
    {R"({"type": "integer", "minimum": 5, "maximum": 4})", "#/maximum"},
    {R"({"type": "integer", "minimum": 1e300, "maximum": 4})", "#/minimum"},
    {R"({"minimum": 5})", "#/minimum"},
    {R"({"type": "string", "format": "email"})", "#/format"},
    {R"({"type": "string", "format": "date", "maxLength": 9})", "#/format"},
    {R"({"type": "string", "pattern": "^a$", "minLength": 2})", "#/pattern"},
    {R"({"type": "string", "pattern": "a+"})", "#/pattern"},
    {R"({"type": "string", "pattern": "^(a$"})", "#/pattern"},
    {R"({"type": "string", "pattern": 7})", "#/pattern"},
    {R"({"type": "string", "contentEncoding": "base64"})", "#/contentEncoding"},
    {R"({"type": "string", "maxLenght": 3})", "#/maxLenght"},
    {R"({"type": "string", "enum": [1]})", "#/enum"},
    {R"({"enum": []})", "#/enum"},
    {R"({"const": 1, "minimum": 0})", "#/minimum"},
    {R"({"anyOf": []})", "#/anyOf"},
    {R"({"anyOf": [{"type": "string"}], "maxLength": 3})", "#/maxLength"},
    {R"({"oneOf": [{"type": "string"}, {"type": "string", "maxLength": 3}]})", "#/oneOf"},
    {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "#/oneOf"},
    {R"({"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]})", "#/allOf"},
    {R"({"allOf": [{"type": "string"}]})", "#/allOf"},
    {R"({"$ref": "https://example.org/schema"})", "#/$ref"},
    {R"({"$ref": "#/$defs/missing"})", "#/$ref"},
    {R"({"$ref": "#/a~1b"})", "#/$ref"},
    {R"({"$ref": 7})", "#/$ref"},
    {R"({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"})",
     "#/$defs/b/$ref"},
    {R"({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {}]}}, "$ref": "#/$defs/a"})",
     "#/$defs/a/anyOf/0/$ref"},
    {R"({"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"})",
     "#/$defs/a/allOf/0/$ref"},
    {R"({"$defs": {"a_b": {}, "a-b": {"type": "null"}}, "anyOf": [{"$ref": "#/$defs/a_b"}, {"$ref": "#/$defs/a-b"}]})",
     "#/anyOf/1/$ref"},
    {R"({"$defs": {"a": {"type": "string"}}, "$ref": "#/$defs/a", "maxLength": 3})", "#/maxLength"},
    {R"({"$defs": {"a": {"type": "string", "format": "email"}}, "$ref": "#/$defs/a"})", "#/$defs/a/format"},
};

std::string nested(size_t depth) {
    std::string schema = "{}";
    for (size_t i = 0; i < depth; i++) {
        schema.insert(0, R"({"type": "array", "items": )").append("}");
    }
    return schema;
}

} // namespace

TEST_CASE("schema_check: a schema that passes is enforced") {
    for (const Enforced & each : ENFORCED) {
        CAPTURE(each.schema);
        const std::string grammar = schema_grammar(each.schema);
        CAPTURE(grammar);
        for (size_t i = 0; i < each.conform.size(); i++) {
            CAPTURE(i);
            CHECK(matches(grammar, each.conform[i]));
        }
        for (size_t i = 0; i < each.violate.size(); i++) {
            CAPTURE(i);
            CHECK_FALSE(matches(grammar, each.violate[i]));
        }
    }
}

TEST_CASE("schema_check: what a grammar would not enforce is refused, with its place") {
    for (const Refused & each : REFUSED) {
        CAPTURE(each.schema);
        try {
            schema_grammar(each.schema);
            FAIL_CHECK("it was not refused");
        } catch (const Error & error) {
            CHECK(error.code == ErrorCode::grammar_invalid);
            CHECK(std::get<std::string>(error.detail.at(0).second) == each.pointer);
            CHECK(std::string(error.what()).find(each.pointer) != std::string::npos);
        }
    }
}

// Once one of these fails, llama.cpp has been mended, and schema_check.cpp may let the schema through.
TEST_CASE("schema_check: the converter alone lets these pass") {
    const auto loose = [](const char * schema, const std::u32string & text) {
        return matches(json_schema_to_grammar(common_json::parse(schema)), text);
    };
    CHECK(loose(R"({"type": "integer", "minimum": 100})", U"10"));
    CHECK(loose(R"({"type": "integer", "maximum": -5})", U"-05"));
    CHECK(loose(R"({"type": "string", "pattern": "^a.c$"})", U"\"a\"c\""));
    CHECK(loose(R"({"type": "string", "pattern": "^[^b]$"})", U"\"\"\""));
    CHECK(loose(R"({"type": "string", "pattern": "^a\\.*$"})", U"\"a.a.\""));
    CHECK(loose(R"({"type": "object", "properties": {"*": {}}})", U"{\"*\":1,\"*\":2}"));
    CHECK(loose(R"({"properties": {"a": {}}, "additionalProperties": true})", U"{\"\\\":1}"));
    CHECK(loose(R"({"$defs": {"a_b": {}, "a-b": {"type": "null"}},
                    "type": "array", "items": [{"$ref": "#/$defs/a_b"}, {"$ref": "#/$defs/a-b"}]})",
                U"[1,1]"));
}

TEST_CASE("schema_check: depth, size and names are bounded") {
    CHECK(schema_grammar(nested(30)).size() > 100);
    CHECK_THROWS_WITH_AS(schema_grammar(nested(40)), doctest::Contains("nested deeper"), Error);
    std::string many = R"({"type": "object", "properties": {"first": {})";
    for (int i = 0; i < 100; i++) {
        many.append(",\"p").append(std::to_string(i)).append("\": {}");
    }
    CHECK_THROWS_WITH_AS(schema_grammar(many + "}}"), doctest::Contains("at most 100"), Error);
    const std::string name(300, '%');
    CHECK_THROWS_AS(schema_grammar(R"({"properties": {")" + name + R"(": {}}})"), Error);
}

TEST_CASE("schema_check: a tool that is not strict may say more than a grammar holds") {
    CHECK_NOTHROW(check_schema(
        R"({"type": "object", "properties": {"a": {"type": "string", "format": "uri"}}})", true));
    CHECK_NOTHROW(
        check_schema(R"({"type": "object", "properties": {"n": {"type": "number", "minimum": 0}}})", true));
    CHECK_THROWS_AS(check_schema(R"({"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}})", true),
                    Error);
    CHECK_THROWS_AS(check_schema(nested(40), true), Error);
}
