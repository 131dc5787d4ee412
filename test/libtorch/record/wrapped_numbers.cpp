// Numbers that LibTorch makes tensors of.

#include <torch/torch.h>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/record/wrapped_numbers.hpp>

using namespace reprise;
using namespace reprise::recording;
using namespace reprise::tensors;
using namespace reprise::literals;
using torch::Tensor;

namespace {

Tensor wrapped(double x) {
  Tensor t = torch::tensor(x, torch::kDouble);
  t.unsafeGetTensorImpl()->set_wrapped_number(true);
  return t;
}

}  // namespace

TEST_CASE("a number is one by its flag, or as LibTorch makes them in a step") {
  CHECK(WrappedNumbers::is_number(wrapped(2), false));
  CHECK(WrappedNumbers::is_number(torch::tensor(2.0, torch::kDouble), true));
  CHECK_FALSE(WrappedNumbers::is_number(torch::tensor(2.0, torch::kDouble), false));
  CHECK_FALSE(WrappedNumbers::is_number(torch::tensor(2.0F), true));
  CHECK_FALSE(WrappedNumbers::is_number(torch::ones({1}, torch::kDouble), true));
}

TEST_CASE("equal numbers are one value, which keeps their bytes") {
  RecordingTables tables;
  WrappedNumbers numbers(tables);
  const ValueId two = numbers.add(wrapped(2)), three = numbers.add(wrapped(3));
  CHECK(numbers.add(wrapped(2)) == two);
  CHECK(three != two);
  CHECK(tables.value(two).name() == "scalar.0");
  CHECK(tables.value(three).name() == "scalar.1");
  CHECK(tables.value(two).persistent);
  CHECK(tables.value(two).origin == Origin::scalar);
  double bytes = 0;
  REQUIRE(tables.value(three).outside->scalar.size() == sizeof bytes);
  std::memcpy(&bytes, tables.value(three).outside->scalar.data(), sizeof bytes);
  CHECK(bytes == 3);
  // the same bytes of another type are another number
  CHECK(numbers.add(torch::tensor(std::int64_t{0})) != numbers.add(wrapped(0)));
}

TEST_CASE("with a value each, a number that changes leaves the others their ids") {
  RecordingTables tables;
  WrappedNumbers numbers(tables);
  numbers.give_each_a_value();
  const Tensor two = wrapped(2);
  const ValueId first = numbers.add(two), second = numbers.add(wrapped(2));
  CHECK(first != second);
  CHECK(numbers.bytes_of_op() == 8_B);  // the second one is gone
}

TEST_CASE("a number that outlives its op is a storage of the step from there on") {
  RecordingTables tables;
  WrappedNumbers numbers(tables);
  numbers.give_each_a_value();
  const Tensor kept = wrapped(2);
  static_cast<void>(numbers.add(kept));
  static_cast<void>(numbers.add(wrapped(3)));
  numbers.add_kept();
  numbers.add_kept();
  REQUIRE(tables.calls_seen() == 1);
  const Call& call = tables.recording().calls[0];
  CHECK(call.kind == CallKind::number);
  CHECK_FALSE(call.repeatable);
  const ValueId v = call.results[0].value;
  CHECK(tables.value(v).bytes == 8_B);
  CHECK(tables.value(v).role == Role::constant);
  CHECK(tables.storage_of(kept) == tables.storage_of(v));
  CHECK(tables.contents(tables.storage_of(v)).number);
}

TEST_CASE("a number from before the step takes nothing in it") {
  const Tensor before = wrapped(2);
  RecordingTables tables;
  WrappedNumbers numbers(tables);
  numbers.give_each_a_value();
  static_cast<void>(numbers.add(before));
  CHECK(numbers.bytes_of_op() == 0_B);
  numbers.add_kept();
  CHECK(tables.calls_seen() == 0);
}
