// A recording as a graph: names, attributes, what a node reads.

#include <torch/torch.h>

#include <functional>
#include <limits>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/record/graph_of.hpp>
#include <reprise/libtorch/record/recorder.hpp>

using namespace reprise;
using namespace reprise::recording;
using torch::Tensor;

TEST_CASE("arguments are attributes as JSON has them", "[graph_of]") {
  CHECK(attribute_of({}) == "null");
  CHECK(attribute_of(true) == "true");
  CHECK(attribute_of(3) == "3");
  CHECK(attribute_of(1.0) == "1.0");
  CHECK(attribute_of(0.5) == "0.5");
  CHECK(attribute_of(std::numeric_limits<double>::infinity()) == "\"inf\"");
  CHECK(attribute_of(-std::numeric_limits<double>::infinity()) == "\"-inf\"");
  CHECK(attribute_of(std::numeric_limits<double>::quiet_NaN()) == "\"nan\"");
  CHECK(attribute_of("a\"b") == "\"a\\\"b\"");
  CHECK(attribute_of("\xff") == "\"?\"");
  CHECK(attribute_of(std::vector<std::int64_t>{1, 2}) == "[1,2]");
  CHECK(attribute_of(c10::complex<double>(1, 2)) == "[1.0,2.0]");
  CHECK(attribute_of(torch::ones({1})) == "\"tensor\"");
  CHECK(attribute_of(at::Device(at::kCPU)) == "\"cpu\"");
}

TEST_CASE("call i is node i, value j is value j, with names, bytes and numbers", "[graph_of]") {
  const Tensor x = torch::ones({4});
  Tensor y;
  Recording recording;
  {
    const torch::NoGradGuard no_grad;
    Recorder recorder;
    {
      const auto encoder = scope("encoder");
      y = torch::softmax(x + 1, 0);
    }
    y.relu_();
    recording = recorder.finish();
  }
  const StepGraph graph = graph_of(recording, "toy");
  CHECK(graph.name() == "toy");
  REQUIRE(graph.node_count() == recording.calls.size());
  REQUIRE(graph.value_count() == recording.values.size());
  CHECK(graph.node(NodeId{0}).name == "encoder/add");
  CHECK(graph.node(NodeId{0}).op == "aten::add");
  CHECK_THAT(graph.node(NodeId{0}).extra, contains("\"overload\":\"Scalar\""));
  CHECK_THAT(graph.node(NodeId{0}).extra, contains("\"other\":1"));
  CHECK_THAT(graph.node(NodeId{0}).extra, contains("\"alpha\":1"));
  CHECK_THAT(graph.node(NodeId{1}).extra, contains("\"dim\":0"));
  const ValueId sum = graph.outputs(NodeId{0})[0];
  CHECK(graph.value(sum).bytes == Bytes{16});
  CHECK(graph.inputs(NodeId{1})[0] == sum);
  CHECK_THAT(graph.value(sum).extra, contains("\"shape\":[4]"));
  CHECK_THAT(graph.value(sum).extra, contains("\"dtype\":\"Float\""));
  CHECK(graph.node(NodeId{0}).recomputable);
}

TEST_CASE("a view of something persistent is read together with it, and each input once",
          "[graph_of]") {
  Recording recording;
  recording.values.resize(3);
  recording.values[0].persistent = true;
  recording.values[1].alias_of = ValueId{0};
  CallDraft call;
  for (const std::size_t v : {std::size_t{1}, std::size_t{2}, std::size_t{2}})
    call.add_read({0, -1, ValueId{v}});
  CHECK((inputs_of(recording, call) == std::vector{ValueId{1}, ValueId{0}, ValueId{2}}));
  call.add_update(ValueId{0});  // what it writes is no input
  CHECK((inputs_of(recording, call) == std::vector{ValueId{1}, ValueId{2}}));
}

TEST_CASE("an offset is told from the value that brought the storage", "[graph_of]") {
  Recording recording;
  recording.values.resize(2);
  recording.values[0].geometry = recording.geometry_of(
      Geometry{.sizes = {4}, .strides = {1}, .offset = 10, .dtype = torch::kFloat});
  recording.values[1].geometry = recording.geometry_of(
      Geometry{.sizes = {2}, .strides = {1}, .offset = 12, .dtype = torch::kFloat});
  recording.values[1].alias_of = ValueId{0};
  CHECK(relative_offset(recording, ValueId{1}) == 2);
  recording.values[1].geometry = recording.geometry_of(
      Geometry{.sizes = {2}, .strides = {1}, .offset = 12, .dtype = torch::kDouble});
  CHECK(relative_offset(recording, ValueId{1}) == 12);
}
