// Includes everything, as second.cpp does, and trains with TrainStep.

#include <torch/torch.h>
#include <reprise/graph/dependency_order.hpp>
#include <reprise/libtorch.hpp>
#include <reprise/plan/plan_file.hpp>
#include <reprise/report.hpp>
#include <reprise/reprise.hpp>

#include "seen.hpp"

Seen first_sees() {
  return {&reprise::cpu::counting_allocator(), &reprise::device_memory(),
          reprise::tensors::DispatchHook::current(), reprise::memory_is_counted()};
}

int first_trains(bool (*meanwhile)()) {
  torch::nn::Linear model(4, 2);
  reprise::TrainStep step{model, [&](torch::Tensor x) {
                            if (meanwhile != nullptr && meanwhile())
                              throw std::logic_error("two recorders were on at once");
                            return model->forward(x).square().mean();
                          }};
  for (int i = 0; i < 6; ++i) {  // the second to fourth are compared with what was captured
    model->zero_grad();
    step(torch::randn({8, 4}));
  }
  return static_cast<int>(step.counters().replays);
}
