// Who keeps the tensors that autograd saves.

#include <torch/torch.h>

#include <thread>
#include <vector>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/torch/saved_tensors.hpp>

using namespace reprise::tensors;
using torch::Tensor;

namespace {

struct Counter final : SavedTensorHooks {
  int kept = 0, given = 0, alive = 0;

  struct Saved final : SavedTensor {
    Counter& counter;
    Tensor tensor;
    Saved(Counter& c, const Tensor& t) : counter(c), tensor(detached(t)) { ++counter.alive; }
    ~Saved() override { --counter.alive; }
    Saved(const Saved&) = delete;
    Saved& operator=(const Saved&) = delete;
    Tensor get() override {
      ++counter.given;
      return tensor;
    }
  };
  std::shared_ptr<SavedTensor> keep(const Tensor& t) override {
    ++kept;
    return std::make_shared<Saved>(*this, t);
  }
};

}  // namespace

TEST_CASE("a keeper is asked for what autograd saves in its scope, and gives it back in backward") {
  Counter counter;
  const Tensor x = torch::ones({4}).requires_grad_();
  Tensor y, unseen;
  {
    const KeepSavedTensors here(counter);
    y = x.exp();
  }
  unseen = x.exp();
  CHECK(counter.kept == 1);
  CHECK(counter.alive == 1);
  y.sum().backward();
  CHECK(counter.given == 1);
  CHECK(counter.alive == 0);  // backward has used it
  CHECK(x.grad().equal(torch::ones({4}).exp()));
  unseen.sum().backward();
  CHECK(counter.given == 1);
}

TEST_CASE("the inner keeper is asked alone, and only on its own thread") {
  Counter outer, inner;
  const Tensor x = torch::ones({4}).requires_grad_();
  const KeepSavedTensors here(outer);
  {
    const KeepSavedTensors there(inner);
    static_cast<void>(x.exp());
    std::thread([&] { static_cast<void>(x.exp()); }).join();
  }
  static_cast<void>(x.exp());
  CHECK(inner.kept == 1);
  CHECK(outer.kept == 1);
}

TEST_CASE("a detached tensor shares its bytes and its count of writes, and nothing of the graph") {
  Tensor x = torch::ones({4}).requires_grad_(), y = x * 2;
  const Tensor t = detached(y);
  CHECK(t.const_data_ptr() == y.const_data_ptr());
  CHECK_FALSE(t.requires_grad());
  const auto version = t._version();
  y.add_(1);
  CHECK(t._version() == version + 1);
}
