#pragma once
// A Task is everything that a training program needs to know about a model: the module, its data
// and its loss.
//
//   models::Task task = models::make("resnet18", models::Config::tiny, /*batch=*/4, /*seed=*/1);
//   auto batch = task.make_batch(0);          // {images [4, 3, 64, 64], labels [4]}
//   torch::Tensor loss = task.loss(batch);    // of task.module, as it stands
//   loss.backward();
//
// So one program can train, inspect or compare any of them by name. Same name, config, batch and
// seed: same weights and same data, bit for bit. Neither making a model nor making a batch moves
// the default generator: what dropout draws is the program's own affair.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <torch/torch.h>

namespace models {

/// `full` is the model as published; `tiny` has the same structure and runs a step in milliseconds.
enum class Config { tiny, full };

struct Task {
  std::string name{};
  std::int64_t batch = 0;
  std::shared_ptr<torch::nn::Module> module{};
  std::function<std::vector<torch::Tensor>(std::int64_t step)> make_batch{};
  std::function<torch::Tensor(const std::vector<torch::Tensor>&)> loss{};
};

/// mlp, deep_mlp, resnet18, resnet50, resnet152, unet, lstm, bert, gpt2, vit.
[[nodiscard]] std::span<const std::string_view> names();

/// `batch` 0 is the configuration's own. `size` is the sequence length of a language model or the
/// side of an image; 0 is the configuration's own. Throws reprise::Error (bad_argument) where a
/// name is unknown or a size does not fit the model.
[[nodiscard]] Task make(std::string_view name, Config config, std::int64_t batch = 0,
                        std::uint64_t seed = 1, std::int64_t size = 0);

}  // namespace models
