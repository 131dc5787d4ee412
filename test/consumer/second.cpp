// Includes everything, as first.cpp does, and trains with MemoryBudget.

#include <torch/torch.h>
#include <reprise/graph/dependency_order.hpp>
#include <reprise/libtorch.hpp>
#include <reprise/plan/plan_file.hpp>
#include <reprise/report.hpp>
#include <reprise/reprise.hpp>

#include "seen.hpp"

Seen second_sees() {
  return {&reprise::cpu::counting_allocator(), &reprise::device_memory(),
          reprise::tensors::DispatchHook::current(), reprise::memory_is_counted()};
}

bool second_trains() try {
  using namespace reprise::literals;
  reprise::MemoryBudget budget{64_MiB};
  torch::nn::Linear model(4, 2);
  for (int i = 0; i < 3; ++i) {
    auto step = budget.step();
    model->zero_grad();
    model->forward(torch::randn({8, 4})).square().mean().backward();
  }
  return model->weight.grad().defined();
} catch (const reprise::Error& e) {
  if (e.code() != reprise::Errc::bad_argument) throw;
  return false;
}
