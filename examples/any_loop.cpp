// A plain LibTorch loop, and the same inside a budget: two lines more.
//
//   any_loop            runs both, the second in 60 % of the memory that the first takes, and compares their weights
//
// The README shows the two lines as a diff. The loop has what a replayed graph could not have: a
// layer that is left out by a coin that the host throws, lengths that change from step to step, and
// gradient clipping.

#include <cstring>
#include <iostream>
#include <random>
#include <vector>

#include <torch/torch.h>
#include <reprise/libtorch.hpp>

namespace {

struct Net : torch::nn::Module {
  Net() {
    for (int i = 0; i < 12; ++i) layers->push_back(torch::nn::Linear(128, 128));
    register_module("layers", layers);
    register_module("head", head);
  }
  torch::Tensor forward(torch::Tensor x, std::mt19937& coin) {
    for (auto& layer : *layers)
      if (coin() % 10 != 0) x = x + torch::gelu(layer.forward(torch::layer_norm(x, {128})));
    return head(x.mean(1));
  }
  torch::nn::Sequential layers{};
  torch::nn::Linear head{128, 10};
};

struct Batch {
  torch::Tensor x, y;
};

Batch make_batch(int step) {
  const torch::Tensor x = torch::randn({32, 16 + 8 * (step % 3), 128});
  return {x, x.select(1, 0).narrow(1, 0, 10).argmax(1)};
}

// A loop as people write it.
std::vector<torch::Tensor> train_plain(int steps) {
  torch::manual_seed(1);
  std::mt19937 coin(7);
  Net model;
  torch::optim::Adam optimizer(model.parameters(), 1e-3);
  for (int i = 0; i < steps; ++i) {
    const Batch batch = make_batch(i);
    optimizer.zero_grad();
    torch::Tensor loss = torch::cross_entropy_loss(model.forward(batch.x, coin), batch.y);
    loss.backward();
    torch::nn::utils::clip_grad_norm_(model.parameters(), 1.0);
    optimizer.step();
  }
  return model.parameters();
}

// The same inside a budget.
std::vector<torch::Tensor> train_inside(int steps, reprise::Bytes bytes) {
  torch::manual_seed(1);
  std::mt19937 coin(7);
  Net model;
  torch::optim::Adam optimizer(model.parameters(), 1e-3);
  reprise::MemoryBudget budget{bytes};
  for (int i = 0; i < steps; ++i) {
    const Batch batch = make_batch(i);
    auto step = budget.step();
    optimizer.zero_grad();
    torch::Tensor loss = torch::cross_entropy_loss(model.forward(batch.x, coin), batch.y);
    loss.backward();
    torch::nn::utils::clip_grad_norm_(model.parameters(), 1.0);
    optimizer.step();
  }
  std::cout << budget.summary() << budget.advise().text();
  return model.parameters();
}

bool same_bits(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(a[i].const_data_ptr(), b[i].const_data_ptr(), a[i].nbytes()) != 0) return false;
  return true;
}

}  // namespace

int main() {
  constexpr int steps = 24;
  reprise::device_memory().reset_peak();
  const std::vector<torch::Tensor> plain = train_plain(steps);
  const reprise::Bytes held = reprise::device_memory().live(),
                       peak = reprise::device_memory().peak();
  std::cout << "the plain loop: peak " << format_bytes(peak) << '\n';

  const std::vector<torch::Tensor> ours = train_inside(steps, held + reprise::share_of(60, peak));
  const bool equal = same_bits(plain, ours);
  std::cout << (equal ? "equal: every weight after " : "NOT equal after ") << steps
            << " steps, bit for bit\n";
  return equal ? 0 : 1;
}
