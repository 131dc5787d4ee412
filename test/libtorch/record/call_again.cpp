// A recorded call, run again.

#include <torch/torch.h>

#include <vector>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/record/call_again.hpp>
#include <reprise/libtorch/record/recorder.hpp>

using namespace reprise;
using namespace reprise::recording;
using torch::Tensor;

namespace {

Recording record(const std::function<void()>& run) {
  const torch::NoGradGuard no_grad;
  Recorder recorder;
  run();
  return recorder.finish();
}

}  // namespace

TEST_CASE("a call runs again over other tensors, with the numbers that it had", "[call_again]") {
  const Tensor x = torch::arange(8, torch::kFloat), y = torch::ones({8});
  const Recording recording = record([&] { static_cast<void>(torch::add(x, y, 3)); });
  REQUIRE(recording.calls.size() == 1);
  const std::vector<Tensor> others{torch::ones({8}), x};
  const auto results = call_again(recording.calls[0], others);
  const Tensor result =
      result_again(recording.calls[0], recording.calls[0].results[0], results, others);
  CHECK(result.equal(torch::add(others[0], x, 3)));
}

TEST_CASE("lists are filled element by element, and an undefined tensor is left out",
          "[call_again]") {
  const Tensor x = torch::ones({2}), y = torch::zeros({3});
  const Recording recording = record([&] { static_cast<void>(torch::cat({x, y, x})); });
  const std::vector<Tensor> others{y, x, y};
  const auto results = call_again(recording.calls[0], others);
  CHECK(results[0].toTensor().equal(torch::cat({y, x, y})));

  std::vector<c10::IValue> arguments{c10::IValue(), c10::IValue(3)};
  const std::vector<ArgumentSlot> slots{{0, -1, {}}, {1, -1, {}}};
  const std::vector<Tensor> tensors{x, Tensor()};
  fill_arguments(arguments, slots, [&](std::size_t k) -> const Tensor& { return tensors[k]; });
  CHECK(arguments[0].toTensor().is_same(x));
  CHECK(arguments[1].toInt() == 3);
}

TEST_CASE("what was written in place is the tensor that was given", "[call_again]") {
  Tensor x = torch::full({4}, -1.0);
  const Recording recording = record([&] { torch::relu_(x); });
  const std::vector<Tensor> others{torch::full({4}, -2.0)};
  Call call = recording.calls[0];
  const auto results = call_again(call, others);
  CHECK(others[0].equal(torch::zeros({4})));
  const ResultSlot written{ResultSlot::From::argument, 0, -1, {}};
  CHECK(result_again(call, written, results, others).is_same(others[0]));
}

TEST_CASE("a call runs under the switches of its first run", "[call_again]") {
  const int before = at::get_num_threads();
  const Recording recording = record([&] { static_cast<void>(torch::empty({2})); });
  Call call = recording.calls[0];
  Switches other = Switches::now();
  other.default_dtype = torch::kDouble;
  call.switches = Switches::interned(other);
  CHECK(call_again(call, {})[0].toTensor().scalar_type() == torch::kDouble);
  CHECK(Switches::now().default_dtype == torch::kFloat);
  CHECK(at::get_num_threads() == before);
}

TEST_CASE("a number is a tensor over its recorded bytes", "[call_again]") {
  Tensor wrapped = torch::tensor(2.5, torch::kDouble);
  wrapped.unsafeGetTensorImpl()->set_wrapped_number(true);
  RecordingTables tables;
  const RecordedValue& value = tables.value(WrappedNumbers(tables).add(wrapped));
  const Tensor number = tensor_of_number(value);
  CHECK(number.item<double>() == 2.5);
  CHECK(number.unsafeGetTensorImpl()->is_wrapped_number());
  CHECK(number.const_data_ptr() == value.outside->scalar.data());
}
