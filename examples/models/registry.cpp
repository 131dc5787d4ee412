// What the names stand for: options, data and loss of every model. See task.hpp.

#include "task.hpp"

#include <array>
#include <functional>
#include <utility>

#include <reprise/base/error.hpp>

#include "bert.hpp"
#include "gpt2.hpp"
#include "lstm.hpp"
#include "mlp.hpp"
#include "resnet.hpp"
#include "synthetic.hpp"
#include "unet.hpp"
#include "vit.hpp"

namespace models {
namespace {

using Tensors = std::vector<torch::Tensor>;

struct Request {
  std::string name{};
  Config config = Config::tiny;
  std::int64_t batch = 0;
  std::uint64_t seed = 1;
  std::int64_t size = 0;

  template <class T>
  [[nodiscard]] T choose(T tiny, T full) const {
    return config == Config::tiny ? std::move(tiny) : std::move(full);
  }
  [[nodiscard]] std::int64_t batch_or(std::int64_t tiny, std::int64_t full) const {
    return batch != 0 ? batch : choose(tiny, full);
  }
  [[nodiscard]] std::int64_t size_or(std::int64_t tiny, std::int64_t full) const {
    return size != 0 ? size : choose(tiny, full);
  }
};

[[noreturn]] void refuse(const Request& request, const std::string& why) {
  throw reprise::Error(reprise::Errc::bad_argument, request.name + ": " + why);
}

/// Makes the module from the seed and puts the default generator back where it was.
template <class Holder, class Options>
Holder seeded(std::uint64_t seed, const Options& options) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const at::Generator before = generator.clone();
  generator.set_current_seed(seed);
  Holder module(options);
  generator.set_state(before.get_state());
  return module;
}

template <class Holder>
Task task(const Request& request, std::int64_t batch, Holder module,
          std::function<Tensors(at::Generator&)> data,
          std::function<torch::Tensor(const Tensors&)> loss) {
  auto make_batch = [seed = request.seed, data = std::move(data)](std::int64_t step) {
    at::Generator random = synthetic::generator(seed, step);
    return data(random);
  };
  return {request.name, batch, module.ptr(), std::move(make_batch), std::move(loss)};
}

template <class Holder>
Task classifier(const Request& request, Holder module, const synthetic::ImageShape& shape) {
  return task(
      request, shape.batch, module,
      [shape](at::Generator& random) { return synthetic::labelled_images(shape, random); },
      [module](const Tensors& in) mutable {
        return torch::cross_entropy_loss(module(in[0]), in[1]);
      });
}

Task mlp(const Request& request) {
  const std::int64_t side = request.size_or(8, 28);
  MLPOptions options{.inputs = side * side};
  if (request.config == Config::tiny)
    options = {.inputs = side * side,
               .hidden = 32,
               .hidden_layers = 3,
               .classes = 10,
               .input_dropout = 0.05,
               .dropout = 0.1};
  return classifier(request, seeded<MLP>(request.seed, options),
                    {request.batch_or(8, 64), 1, side, options.classes});
}

/// Many layers of next to nothing: what a step costs beside the arithmetic.
Task deep_mlp(const Request& request) {
  const std::int64_t side = request.size_or(4, 4);
  const MLPOptions options{.inputs = side * side,
                           .hidden = 16,
                           .hidden_layers = request.choose<std::int64_t>(20, 200),
                           .classes = 10,
                           .input_dropout = 0,
                           .dropout = 0};
  return classifier(request, seeded<MLP>(request.seed, options),
                    {request.batch_or(4, 4), 1, side, options.classes});
}

Task resnet(const Request& request, const ResNetOptions& tiny, const ResNetOptions& full) {
  const auto options = request.choose(tiny, full);
  const std::int64_t side = request.size_or(64, 224);
  if (side < 33)
    refuse(request, "images of " + std::to_string(side) +
                        " are too small: five halvings must leave at least 2 x 2");
  return classifier(request, seeded<ResNet>(request.seed, options),
                    {request.batch_or(2, 8), 3, side, options.classes});
}

Task resnet18(const Request& request) {
  return resnet(request, {{2, 1, 1, 1}, false, 8, 10}, {{2, 2, 2, 2}, false, 64, 1000});
}
Task resnet50(const Request& request) {
  return resnet(request, {{2, 1, 1, 1}, true, 8, 10}, {{3, 4, 6, 3}, true, 64, 1000});
}
Task resnet152(const Request& request) {
  return resnet(request, {{1, 2, 3, 1}, true, 8, 10}, {{3, 8, 36, 3}, true, 64, 1000});
}

Task unet(const Request& request) {
  UNetOptions options;
  if (request.config == Config::tiny)
    options = {.channels = 3, .classes = 2, .width = 4, .dropout = 0.1};
  const synthetic::ImageShape shape{request.batch_or(2, 2), options.channels,
                                    request.size_or(32, 256), options.classes};
  if (shape.side < 32)
    refuse(request, "images of " + std::to_string(shape.side) +
                        " are too small: four halvings must leave at least 2 x 2");
  auto module = seeded<UNet>(request.seed, options);
  return task(
      request, shape.batch, module,
      [shape](at::Generator& random) { return synthetic::disks(shape, random); },
      [module](const Tensors& in) mutable { return segmentation_loss(module(in[0]), in[1]); });
}

Task lstm(const Request& request) {
  LSTMOptions options;
  if (request.config == Config::tiny)
    options = {.vocabulary = 50, .width = 16, .layers = 2, .dropout = 0.1};
  const std::int64_t time = request.size_or(8, 35), batch = request.batch_or(4, 20);
  auto module = seeded<LSTMModel>(request.seed, options);
  auto data = [=](at::Generator& random) -> Tensors {
    const auto tokens =
        synthetic::counting(batch, time + 1, 0, options.vocabulary, random).t().contiguous();
    return {tokens.narrow(0, 0, time).clone(), tokens.narrow(0, 1, time).reshape(-1).clone()};
  };
  return task(request, batch, module, data, [module](const Tensors& in) mutable {
    return torch::cross_entropy_loss(module(in[0]), in[1]);
  });
}

Task bert(const Request& request) {
  BertOptions options;
  if (request.config == Config::tiny)
    options = {.vocabulary = 60,
               .width = 16,
               .layers = 2,
               .heads = 2,
               .intermediate = 32,
               .positions = 64,
               .dropout = 0.1};
  const synthetic::MaskedShape shape{request.batch_or(2, 4), request.size_or(16, 128),
                                     options.vocabulary, request.choose(59, 103)};
  if (shape.time > options.positions)
    refuse(request, "sequences are at most " + std::to_string(options.positions) + " long");
  auto module = seeded<BertForMaskedLM>(request.seed, options);
  return task(
      request, shape.batch, module,
      [shape](at::Generator& random) { return synthetic::masked_sequences(shape, random); },
      [module](const Tensors& in) mutable {
        return masked_lm_loss(module(in[0], in[1], in[2]), in[3]);
      });
}

Task gpt2(const Request& request) {
  GPT2Options options;
  if (request.config == Config::tiny)
    options = {
        .vocabulary = 60, .width = 16, .layers = 2, .heads = 2, .positions = 64, .dropout = 0.1};
  const std::int64_t time = request.size_or(16, 256), batch = request.batch_or(2, 2);
  if (time < 2 || time > options.positions)
    refuse(request, "sequences are 2 to " + std::to_string(options.positions) + " long");
  auto module = seeded<GPT2>(request.seed, options);
  return task(
      request, batch, module,
      [=](at::Generator& random) -> Tensors {
        return {synthetic::counting(batch, time, 0, options.vocabulary, random)};
      },
      [module](const Tensors& in) mutable { return next_token_loss(module(in[0]), in[0]); });
}

Task vit(const Request& request) {
  ViTOptions options;
  if (request.config == Config::tiny)
    options = {.image = 16,
               .patch = 4,
               .width = 16,
               .layers = 2,
               .heads = 2,
               .mlp = 32,
               .classes = 10,
               .dropout = 0.1};
  options.image = request.size_or(16, 224);
  if (options.image % options.patch != 0)
    refuse(request, "the side of an image must be a multiple of " + std::to_string(options.patch));
  return classifier(request, seeded<ViT>(request.seed, options),
                    {request.batch_or(4, 8), 3, options.image, options.classes});
}

constexpr std::array<std::string_view, 10> model_names{
    "mlp", "deep_mlp", "resnet18", "resnet50", "resnet152", "unet", "lstm", "bert", "gpt2", "vit"};
constexpr std::array<Task (*)(const Request&), 10> makers{
    mlp, deep_mlp, resnet18, resnet50, resnet152, unet, lstm, bert, gpt2, vit};

}  // namespace

std::span<const std::string_view> names() { return model_names; }

Task make(std::string_view name, Config config, std::int64_t batch, std::uint64_t seed,
          std::int64_t size) {
  if (batch < 0 || size < 0)
    throw reprise::Error(reprise::Errc::bad_argument, "batch and size must not be negative");
  const Request request{std::string(name), config, batch, seed, size};
  for (std::size_t i = 0; i < model_names.size(); ++i)
    if (model_names[i] == name) return makers[i](request);
  std::string known;
  for (std::string_view each : model_names)
    known += (known.empty() ? "" : ", ") + std::string(each);
  throw reprise::Error(reprise::Errc::bad_argument,
                       "no model '" + std::string(name) + "'; there are " + known);
}

}  // namespace models
