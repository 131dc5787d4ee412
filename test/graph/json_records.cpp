#include <reprise/graph/json_records.hpp>

#include <reprise_test/catch.hpp>
#include <reprise_test/refusal.hpp>

using namespace reprise;
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
  CHECK(refused("") == "bad format: line 1, column 1 (offset 0): the document is empty");
  CHECK(refused("{\n \"a\": tru}") ==
        "bad format: line 2, column 7 (offset 8): 't' where a value is expected");
  CHECK(refused("{\"a\": 1") ==
        "bad format: line 1, column 8 (offset 7): the text ends where ',' or '}' is expected");
  CHECK(refused("{} {}") ==
        "bad format: line 1, column 4 (offset 3): '{' where the end of the document is expected");
  CHECK(refused("{\"a\": NaN}") ==
        "bad format: line 1, column 7 (offset 6): 'N' where a value is expected");
  CHECK(refused("{\"a\": 01}") ==
        "bad format: line 1, column 7 (offset 6): a number does not start with 0");
  CHECK(refused("{\"a\": \"\xff\"}") ==
        "bad format: line 1, column 8 (offset 7): this is not UTF-8");
  CHECK(refused("{\"a\": \"\\ud800\"}") ==
        "bad format: line 1, column 8 (offset 7): half of a pair of surrogates");
  CHECK(refused("{\"a\": \"\n\"}") ==
        "bad format: line 1, column 8 (offset 7): a control character in a string must be written "
        "as \\u00..");
  CHECK(refused("{\"a\": 1e400}") ==
        "bad format: line 1, column 7 (offset 6): no double is as large as 1e400");
}

TEST_CASE("messages about text stay short however long the text is") {
  CHECK(refused("{\"a\": \"" + std::string(100'000, 'x') + "\xff").size() < 400);
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
