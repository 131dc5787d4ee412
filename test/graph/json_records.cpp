#include <reprise/graph/json_records.hpp>

#include <reprise_test/catch.hpp>
#include <reprise_test/refusal.hpp>

using namespace reprise;
using namespace reprise::graphs;
using reprise_test::refusal;

namespace {

// Writes down what it is told, one line each.
struct Listener {
  std::string heard{};

  static bool begin_list(std::string_view key) { return key == "values"; }
  void member(const JsonField& f) { heard += f.key + "=" + json_text(f) + "\n"; }
  void record(std::string_view list, std::size_t index, const JsonFields& fields) {
    heard += std::string(list) + "[" + std::to_string(index) + "]";
    for (const JsonField& f : fields.list) heard += " " + f.key + "=" + json_text(f);
    heard += "\n";
  }
};

std::string hear(std::string_view text) {
  Listener listener;
  read_json_records(text, listener);
  return listener.heard;
}

std::string refused(const std::string& text) {
  return refusal([&] { hear(text); });
}

// {"a": [[[...]]]} with so many arrays.
std::string nested(std::size_t arrays) {
  return R"({"a": )" + std::string(arrays, '[') + std::string(arrays, ']') + "}";
}

}  // namespace

TEST_CASE("members and records come in the order of the document") {
  CHECK(
      hear(
          R"({"format": "reprise.graph", "values": [{"id": 0, "bytes": 4096, "shape": [32, 32]}, {}], "z": null})") ==
      "format=\"reprise.graph\"\n"
      "values[0] id=0 bytes=4096 shape=[32,32]\n"
      "values[1]\n"
      "z=null\n");
}

TEST_CASE("a field's JSON is what the document had, nested or not") {
  const std::string_view same =
      R"({"b":[1,[2,{"x":[],"y":{}}],"s\n",null,true,-7,0.10,1e5,18446744073709551617,2.50]})";
  CHECK(hear(same) == "b=" + std::string(same.substr(5, same.size() - 6)) + "\n");
  CHECK(hear(R"({"a":{"k":{"k":1,"k":2}},"e":[],"i":[1,-2,3],"m":[1,2,"x",3]})") ==
        "a={\"k\":{\"k\":1,\"k\":2}}\ne=[]\ni=[1,-2,3]\nm=[1,2,\"x\",3]\n");
}

TEST_CASE("integers are those that 64 bits hold and that are written as such") {
  struct Kinds {
    std::vector<JsonKind> kinds{};
    static bool begin_list(std::string_view) { return false; }
    void member(const JsonField& f) { kinds.push_back(f.kind); }
    static void record(std::string_view, std::size_t, const JsonFields&) {}
  } listener;
  read_json_records(
      R"({"a":9223372036854775807,"b":-9223372036854775808,"c":9223372036854775808,"d":3.0,"e":1e2,"f":-0})",
      listener);
  using enum JsonKind;
  CHECK(listener.kinds == std::vector{integer, integer, number, number, number, integer});
}

TEST_CASE("text that is not JSON is refused with its place") {
  CHECK(refused("") ==
        "bad format: line 1, column 1 (offset 0): syntax error while parsing value - unexpected "
        "end of input; expected '[', '{', or a literal");
  CHECK(refused("{\n \"a\": tru}") ==
        "bad format: line 2, column 10 (offset 11): syntax error while parsing value - invalid "
        "literal");
  CHECK(refused("{\"a\": }") ==
        "bad format: line 1, column 7 (offset 6): syntax error while parsing value - unexpected "
        "'}'; expected '[', '{', or a literal");
  CHECK(refused("{\"a\": 1") ==
        "bad format: line 1, column 8 (offset 7): syntax error while parsing object - unexpected "
        "end of input; expected '}'");
  CHECK(refused("{} {}") ==
        "bad format: line 1, column 4 (offset 3): syntax error while parsing value - unexpected "
        "'{'; expected end of input");
  CHECK(refused("{\"a\": 01}") ==
        "bad format: line 1, column 8 (offset 7): syntax error while parsing object - unexpected "
        "number literal; expected '}'");
  CHECK(refused("{\"a\": \"\xff\"}") ==
        "bad format: line 1, column 8 (offset 7): syntax error while parsing value - invalid "
        "string: ill-formed UTF-8 byte");
  CHECK(refused("{\"a\": \"\\ud800\"}") ==
        "bad format: line 1, column 14 (offset 13): syntax error while parsing value - invalid "
        "string: surrogate U+D800..U+DBFF must be followed by U+DC00..U+DFFF");
  CHECK(refused("{\"a\": 1e400}") ==
        "bad format: line 1, column 11 (offset 10): number overflow parsing '1e400'");
}

TEST_CASE("a zero byte does not end the document before its end") {
  CHECK(refused(std::string("{}\0{", 4)) ==
        "bad format: line 1, column 3 (offset 2): a zero byte is not JSON");
  CHECK(refused(R"({"a": "\u0000"})") == "accepted");
}

TEST_CASE("strings are handed over unescaped, and a byte order mark is passed over") {
  struct Texts {
    std::string text{};
    static bool begin_list(std::string_view) { return false; }
    void member(const JsonField& f) { text = f.text; }
    static void record(std::string_view, std::size_t, const JsonFields&) {}
  } listener;
  read_json_records("\xEF\xBB\xBF{\"s\": \"\\u0041\\u00e9\\ud83d\\ude00\\/\\b\"}", listener);
  CHECK(listener.text == "A\xC3\xA9\xF0\x9F\x98\x80/\b");
}

TEST_CASE("a number too small for a double is 0, and keeps its text") {
  CHECK(hear(R"({"a":1e-400,"b":[-1e-99999999999999999999]})") ==
        "a=1e-400\nb=[-1e-99999999999999999999]\n");
}

TEST_CASE("messages about text stay short however long the text is") {
  CHECK(refused("{\"a\": \"" + std::string(100'000, 'x') + "\xff").size() < 400);
  CHECK(refused("{\"a\": " + std::string(100'000, '9') + "}").size() < 400);
}

TEST_CASE("the document and the elements of its lists are objects") {
  CHECK(refused("[]") == "bad format: the document is not an object");
  CHECK(refused("3") == "bad format: the document is not an object");
  CHECK(refused(R"({"values": [{}, 3]})") == "bad format: values: element 1 is not an object");
  CHECK(refused(R"({"values": [[]]})") == "bad format: values: element 0 is not an object");
}

TEST_CASE("nesting is limited, however deep it goes") {
  CHECK(refused(nested(max_json_depth - 1)) == "accepted");
  CHECK(refused(nested(max_json_depth)) ==
        "bad format: a: arrays and objects are nested deeper than 128");
  CHECK(refused(nested(1'000'000)) ==
        "bad format: a: arrays and objects are nested deeper than 128");
  CHECK(refused(R"({"values": [{"b": )" + std::string(1'000'000, '[')) ==
        "bad format: values: element 0: b: arrays and objects are nested deeper than 128");
  std::string objects;
  for (int i = 0; i < 1'000'000; ++i) objects += "{\"a\":";
  CHECK(refused(objects) == "bad format: a: arrays and objects are nested deeper than 128");
  CHECK(refused(std::string(1'000'000, '[')) == "bad format: the document is not an object");
}

TEST_CASE(
    "a member that stands twice is refused in the document and in records, and kept below them") {
  CHECK(refused(R"({"a": 1, "b": 2, "a": 1})") == "bad format: member 'a' stands twice");
  CHECK(refused(R"({"values": [], "values": []})") == "bad format: member 'values' stands twice");
  CHECK(refused(R"({"values": [{}, {"id": 1, "id": 1}]})") ==
        "bad format: values: element 1: member 'id' stands twice");
  CHECK(refused(R"({"a": {"b": 1, "b": 2}})") == "accepted");
}

TEST_CASE("a record with a hundred thousand members takes no quadratic time") {
  std::string text = R"({"values": [{)";
  for (int i = 0; i < 100'000; ++i) text += "\"m" + std::to_string(i) + "\": 0, ";
  CHECK(refused(text + "\"m7\": 0}]}") ==
        "bad format: values: element 0: member 'm7' stands twice");
}
