#pragma once
// Data that a model can learn something from, made on the spot from a generator of its own.
//
//   auto generator = synthetic::generator(/*seed=*/1, /*step=*/0);
//   auto batch = synthetic::labelled_images({.batch = 4, .channels = 3, .side = 64, .classes = 10}, generator);
//   // {images [4, 3, 64, 64], labels [4]}: stripes whose frequencies tell the label, under noise

#include <cstdint>
#include <numbers>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

namespace models::synthetic {

/// One generator per step, so that a step's batch can be made without making those before it. CPU
/// generators take 32 bits of seed.
inline at::Generator generator(std::uint64_t seed, std::int64_t step) {
  const std::uint64_t mixed =
      seed * 0x9E3779B97F4A7C15ULL + static_cast<std::uint64_t>(step) * 0xBF58476D1CE4E5B9ULL;
  return at::make_generator<at::CPUGeneratorImpl>(mixed >> 32);
}

struct ImageShape {
  std::int64_t batch = 1;
  std::int64_t channels = 3;
  std::int64_t side = 224;
  std::int64_t classes = 1000;
};

/// {images, labels}: stripes whose frequencies tell the label, under noise.
inline std::vector<torch::Tensor> labelled_images(const ImageShape& shape, at::Generator& random) {
  const auto labels = torch::randint(0, shape.classes, {shape.batch}, random, torch::kLong);
  const auto angle = torch::linspace(0, 2 * std::numbers::pi, shape.side);
  const auto across =
      torch::sin((labels % 8 + 1).unsqueeze(1) * angle).view({shape.batch, 1, 1, shape.side});
  const auto down = torch::cos((labels.floor_divide(8) % 8 + 1).unsqueeze(1) * angle)
                        .view({shape.batch, 1, shape.side, 1});
  auto images = torch::randn({shape.batch, shape.channels, shape.side, shape.side}, random);
  images += across;
  images += down;
  return {images, labels};
}

/// {images, labels}: a disk somewhere (class 1) on a dark ground (class 0), under noise.
inline std::vector<torch::Tensor> disks(const ImageShape& shape, at::Generator& random) {
  const auto axis = torch::linspace(0, 1, shape.side);
  const auto uniform = [&](double low, double high) {
    return torch::rand({shape.batch, 1, 1}, random) * (high - low) + low;
  };
  const auto row = axis.view({1, shape.side, 1}) - uniform(0.25, 0.75);
  const auto column = axis.view({1, 1, shape.side}) - uniform(0.25, 0.75);
  const auto labels =
      (row.square() + column.square() < uniform(0.1, 0.3).square()).to(torch::kLong);
  auto images = torch::randn({shape.batch, shape.channels, shape.side, shape.side}, random);
  images += 2 * labels.unsqueeze(1);
  return {images, labels};
}

/// Token sequences [batch, time] in [first, vocabulary): counting from a random start by 1, 2 or 3,
/// which two tokens give away.
inline torch::Tensor counting(std::int64_t batch, std::int64_t time, std::int64_t first,
                              std::int64_t vocabulary, at::Generator& random) {
  const auto start = torch::randint(0, vocabulary - first, {batch, 1}, random, torch::kLong);
  const auto stride = torch::randint(1, 4, {batch, 1}, random, torch::kLong);
  return (start + stride * torch::arange(time)) % (vocabulary - first) + first;
}

struct MaskedShape {
  std::int64_t batch = 1;
  std::int64_t time = 128;
  std::int64_t vocabulary = 30'522;
  std::int64_t mask_token = 103;
};

/// {tokens, token_types, attention_mask, labels}: sequences of different lengths, padded with 0;
/// the first and about 15 % of the other tokens of each hidden behind the mask token, and only
/// those labelled.
inline std::vector<torch::Tensor> masked_sequences(const MaskedShape& shape,
                                                   at::Generator& random) {
  const auto position = torch::arange(shape.time).unsqueeze(0);
  const auto length =
      torch::randint((shape.time + 1) / 2, shape.time + 1, {shape.batch, 1}, random, torch::kLong);
  const auto present = position < length;
  const auto chosen =
      ((torch::rand({shape.batch, shape.time}, random) < 0.15) | (position == 0)) & present;
  const auto truth = counting(shape.batch, shape.time, 1, shape.vocabulary, random);
  const auto tokens = truth.masked_fill(chosen, shape.mask_token).masked_fill(~present, 0);
  const auto types = (position * 2 >= length).to(torch::kLong) * present;
  return {tokens, types, present.to(torch::kLong), truth.masked_fill(~chosen, -100)};
}

}  // namespace models::synthetic
