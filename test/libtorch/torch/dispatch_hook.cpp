// Sees every op below autograd on this thread, and runs it.

#include <torch/torch.h>

#include <algorithm>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/torch/dispatch_hook.hpp>

using namespace reprise::tensors;
using torch::Tensor;

namespace {

struct Names final : DispatchHook {
  std::vector<std::string> seen{};
  void on_op(const c10::OperatorHandle& op, c10::DispatchKeySet below,
             torch::jit::Stack& stack) override {
    seen.push_back(op.schema().name());
    run_in(this->below(), op, below, stack);
  }
};
using Seen = std::vector<std::string>;

}  // namespace

TEST_CASE("a hook sees the ops of forward and backward, and nothing that they call inside") {
  Names hook;
  const Tensor x = torch::ones({4}).requires_grad_();
  hook.switch_on();
  const Tensor y = torch::relu(x);
  CHECK(hook.seen == Seen{"aten::relu"});
  hook.seen.clear();
  y.backward(torch::ones({4}));
  CHECK(std::ranges::find(hook.seen, "aten::threshold_backward") != hook.seen.end());
  hook.switch_off();
  hook.seen.clear();
  static_cast<void>(torch::relu(x));
  CHECK(hook.seen.empty());
  CHECK(x.grad().equal(torch::ones({4})));
}

TEST_CASE("a second hook is refused, and one may be switched on above another") {
  Names lower, upper;
  const Tensor x = torch::ones({4});
  lower.switch_on();
  CHECK(DispatchHook::current() == &lower);
  CHECK_THROWS_WITH(upper.switch_on(), contains("already being recorded on this thread"));
  upper.switch_on_above();
  CHECK(DispatchHook::current() == &upper);
  CHECK(upper.below() == &lower);
  CHECK(lower.is_on());
  static_cast<void>(torch::relu(x));
  CHECK(upper.seen == Seen{"aten::relu"});
  CHECK(lower.seen == Seen{"aten::relu"});
  upper.switch_off();
  CHECK(DispatchHook::current() == &lower);
  static_cast<void>(torch::relu(x));
  CHECK(upper.seen.size() == 1);
  CHECK(lower.seen.size() == 2);
}

TEST_CASE("another thread's ops are seen while it has joined, and never after the hook has died") {
  const Tensor x = torch::ones({4});
  {
    Names hook;
    hook.switch_on();
    std::thread([&] {
      static_cast<void>(torch::relu(x));
      CHECK(hook.seen.empty());
      const DispatchHook::Joined joined(hook);
      static_cast<void>(torch::relu(x));
      CHECK(hook.seen == Seen{"aten::relu"});
    }).join();
    std::promise<void> has_joined, is_off;
    std::thread thread([&] {
      const DispatchHook::Joined joined(hook);
      has_joined.set_value();
      is_off.get_future().wait();
      static_cast<void>(torch::relu(x));
      CHECK(DispatchHook::current() == nullptr);
    });
    has_joined.get_future().wait();
    hook.switch_off();
    is_off.set_value();
    thread.join();
    CHECK(hook.seen.size() == 1);
  }
  CHECK(DispatchHook::current() == nullptr);
}
