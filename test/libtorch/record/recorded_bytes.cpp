// How many bytes a recording takes for each op.

#include <torch/torch.h>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/record/recorder.hpp>
#include <reprise_test/counted_new.hpp>

using namespace reprise;
using namespace reprise::recording;

namespace {

// As a scan over time is written without a kernel of its own: many small ops, half of them views.
void small_ops(std::int64_t steps, const torch::Tensor& weights) {
  torch::Tensor h = torch::zeros({8, 16});
  const torch::Tensor x = torch::ones({8, 64, 16});
  for (std::int64_t t = 0; t < steps; ++t)
    h = h * weights + torch::exp(x.select(1, t % 64).unsqueeze(2).squeeze(2) * -1.0);
  h.sum().backward();
}

}  // namespace

TEST_CASE("a recorded op takes at most 352 bytes of the process") {
  const torch::Tensor weights = torch::ones({8, 16}).requires_grad_();
  small_ops(8, weights);  // what LibTorch and the recorder make once
  {
    Recorder recorder;
    small_ops(8, weights);
  }
  const reprise_test::CountedNew counted;
  Recording recording;
  {
    Recorder recorder;
    recorder.expect(10'300, 10'300, 6'000);
    small_ops(1024, weights);
    recording = recorder.finish();
  }
  const auto ops = static_cast<std::int64_t>(recording.calls.size());
  INFO(counted.live() << " bytes for " << ops << " ops, " << recording.values.size() << " values");
  REQUIRE(ops > 10'000);
  CHECK(counted.live() <= 352 * ops);
  CHECK(sizeof(Call) <= 160);
  CHECK(sizeof(RecordedValue) <= 56);
}

TEST_CASE("a recording's memory serves the next step's, and holds nothing of the one before") {
  const torch::Tensor weights = torch::ones({8, 16}).requires_grad_();
  const auto record = [&](Recording old) {
    Recorder recorder;
    recorder.reuse(std::move(old));
    small_ops(256, weights);
    return recorder.finish();
  };
  Recording first = record({});
  const std::size_t ops = first.calls.size();
  const Call* const calls = first.calls.data();
  first.refusal = "of the first step";
  first.clear();
  CHECK(first.values.empty());
  CHECK(first.refusal.empty());
  const reprise_test::CountedNew counted;
  const Recording second = record(std::move(first));
  CHECK(second.calls.size() == ops);
  CHECK(second.calls.data() == calls);
  CHECK(counted.live() < 16 * static_cast<std::int64_t>(ops));
}

TEST_CASE("what a recording keeps of a call is what the call had") {
  const torch::Tensor weights = torch::ones({8, 16}).requires_grad_();
  Recorder recorder;
  const torch::Tensor sum = torch::add(weights.detach(), torch::ones({8, 16}), 2);
  Recording moved = recorder.finish();
  const Recording recording = std::move(moved);
  const Call& add = recording.calls.back();
  REQUIRE(add.op_name() == "aten::add");
  CHECK(add.op->schema().overload_name() == "Tensor");
  REQUIRE(add.args.size() == 3);
  CHECK(add.args[2].toScalar().toLong() == 2);
  REQUIRE(add.reads.size() == 2);
  CHECK(add.reads[1].arg == 1);
  REQUIRE(add.results.size() == 1);
  const RecordedValue& made = recording.values[add.results[0].value.index];
  CHECK(lies_as(sum, *made.geometry));
  // both operands of one shape lie alike, and that is kept once
  CHECK(made.geometry == recording.values[add.reads[1].value.index].geometry);
}
