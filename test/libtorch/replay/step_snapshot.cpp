// What a step changes in place, copied and put back.

#include <torch/torch.h>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/device/cpu/counting_allocator.hpp>
#include <reprise/libtorch/replay/step_snapshot.hpp>

using namespace reprise;
using namespace reprise::replaying;
using torch::Tensor;

TEST_CASE("a snapshot puts back tensors, with what lies beside a view, and the generator") {
  torch::manual_seed(9);
  Tensor whole = torch::arange(8, torch::kFloat), other = torch::ones({3});
  const Bytes live = device_memory().live();
  const StepSnapshot before({whole.narrow(0, 2, 3), other});
  CHECK(device_memory().live() == live);
  CHECK(before.holds_now());
  const Tensor drawn = torch::rand({4});
  CHECK_FALSE(before.holds_now());
  whole.mul_(-1);
  other.zero_();
  before.restore();
  CHECK(before.holds_now());
  CHECK(whole.equal(torch::arange(8, torch::kFloat)));
  CHECK(other.equal(torch::ones({3})));
  CHECK(torch::rand({4}).equal(drawn));
}

TEST_CASE("one changed byte is noticed") {
  Tensor t = torch::zeros({1024});
  const StepSnapshot before({t});
  t[1023] = 1;
  CHECK_FALSE(before.holds_now());
  t[1023] = 0;
  CHECK(before.holds_now());
}
