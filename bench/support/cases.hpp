#pragma once
// The full-size models that the benchmarks of both ways train.

#include <string>

#include "support/trainer.hpp"

namespace bench {

struct ModelCase {
  std::string name{}, what{};
  examples::TrainerOptions trainer{};
};

inline const ModelCase resnet50{"resnet50",
                                "ResNet-50, batch 8",
                                {.model = "resnet50", .config = models::Config::full, .batch = 8}};
inline const ModelCase resnet152{
    "resnet152",
    "ResNet-152, batch 4",
    {.model = "resnet152", .config = models::Config::full, .batch = 4}};
inline const ModelCase bert{
    "bert",
    "BERT-base, 4 x 128",
    {.model = "bert", .config = models::Config::full, .batch = 4, .size = 128}};
inline const ModelCase gpt2{
    "gpt2",
    "GPT-2, 2 x 256",
    {.model = "gpt2", .config = models::Config::full, .batch = 2, .size = 256}};

}  // namespace bench
