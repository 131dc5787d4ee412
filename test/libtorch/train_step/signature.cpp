// What makes two calls of a step different: modules and their options, which tensors they have,
// modes. And what does not.

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/train_step.hpp>

using namespace reprise;
using namespace reprise::tensors;
using namespace reprise::training;
using torch::Tensor;

namespace {

/// The state of one module, before and after `change`, and after `back`.
template <class Holder, class Change, class Back>
bool is_noticed(Holder module, Change&& change, Back&& back) {
  ModuleReader reader;
  const std::string before = module_state(reader, module);
  if (module_state(reader, module) != before) return false;  // of the same module it is the same
  change(*module);
  if (module_state(reader, module) == before) return false;
  back(*module);
  return module_state(reader, module) == before;
}

/// An option that is set to `other`, and back.
template <class Holder, class Set, class Value>
bool option(Holder module, Set set, Value first, Value other) {
  set(*module, first);
  return is_noticed(
      module, [&](auto& m) { set(m, other); }, [&](auto& m) { set(m, first); });
}

}  // namespace

TEST_CASE(
    "every option of LibTorch's modules that a forward pass reads is noticed, and so is its way "
    "back") {
  namespace nn = torch::nn;
  CHECK(option(
      nn::Dropout(), [](auto& m, double x) { m.options.p(x); }, 0.5, 0.25));
  CHECK(option(
      nn::Dropout(), [](auto& m, bool x) { m.options.inplace(x); }, false, true));
  CHECK(option(
      nn::Dropout2d(), [](auto& m, double x) { m.options.p(x); }, 0.5, 0.25));
  CHECK(option(
      nn::Dropout3d(), [](auto& m, double x) { m.options.p(x); }, 0.5, 0.25));
  CHECK(option(
      nn::AlphaDropout(), [](auto& m, double x) { m.options.p(x); }, 0.5, 0.25));
  CHECK(option(
      nn::FeatureAlphaDropout(), [](auto& m, double x) { m.options.p(x); }, 0.5, 0.25));
  CHECK(option(
      nn::BatchNorm1d(4), [](auto& m, std::optional<double> x) { m.options.momentum(x); },
      std::optional(0.1), std::optional<double>()));
  CHECK(option(
      nn::BatchNorm2d(4), [](auto& m, double x) { m.options.eps(x); }, 1e-5, 1e-3));
  CHECK(option(
      nn::BatchNorm3d(4), [](auto& m, bool x) { m.options.track_running_stats(x); }, true, false));
  CHECK(option(
      nn::InstanceNorm2d(4), [](auto& m, double x) { m.options.eps(x); }, 1e-5, 1e-3));
  CHECK(option(
      nn::InstanceNorm1d(4), [](auto& m, double x) { m.options.momentum(x); }, 0.1, 0.2));
  CHECK(option(
      nn::LayerNorm(nn::LayerNormOptions({4})), [](auto& m, double x) { m.options.eps(x); }, 1e-5,
      1e-3));
  CHECK(option(
      nn::LayerNorm(nn::LayerNormOptions({4})),
      [](auto& m, std::vector<std::int64_t> x) { m.options.normalized_shape(x); },
      std::vector<std::int64_t>{4}, std::vector<std::int64_t>{2, 4}));
  CHECK(option(
      nn::GroupNorm(2, 4), [](auto& m, std::int64_t x) { m.options.num_groups(x); },
      std::int64_t{2}, std::int64_t{4}));
  CHECK(option(
      nn::LocalResponseNorm(2), [](auto& m, double x) { m.options.alpha(x); }, 1e-4, 1e-3));
  CHECK(option(
      nn::Conv1d(2, 2, 3), [](auto& m, std::int64_t x) { m.options.stride(x); }, std::int64_t{1},
      std::int64_t{2}));
  CHECK(option(
      nn::Conv2d(2, 2, 3), [](auto& m, std::int64_t x) { m.options.dilation(x); }, std::int64_t{1},
      std::int64_t{2}));
  CHECK(option(
      nn::Conv2d(2, 2, 3), [](auto& m, std::int64_t x) { m.options.padding(x); }, std::int64_t{0},
      std::int64_t{2}));
  CHECK(is_noticed(
      nn::Conv2d(2, 2, 3), [](auto& m) { m.options.padding(torch::kSame); },
      [](auto& m) { m.options.padding(0); }));
  CHECK(is_noticed(
      nn::Conv2d(2, 2, 3), [](auto& m) { m.options.padding_mode(torch::kReflect); },
      [](auto& m) { m.options.padding_mode(torch::kZeros); }));
  CHECK(option(
      nn::Conv3d(2, 2, 3), [](auto& m, std::int64_t x) { m.options.groups(x); }, std::int64_t{1},
      std::int64_t{2}));
  CHECK(option(
      nn::ConvTranspose2d(2, 2, 3), [](auto& m, std::int64_t x) { m.options.output_padding(x); },
      std::int64_t{0}, std::int64_t{1}));
  CHECK(option(
      nn::MaxPool2d(2), [](auto& m, bool x) { m.options.ceil_mode(x); }, false, true));
  CHECK(option(
      nn::AvgPool2d(2), [](auto& m, bool x) { m.options.count_include_pad(x); }, true, false));
  CHECK(option(
      nn::AvgPool3d(2),
      [](auto& m, std::optional<std::int64_t> x) { m.options.divisor_override(x); },
      std::optional<std::int64_t>(), std::optional<std::int64_t>(3)));
  CHECK(option(
      nn::AdaptiveAvgPool2d(2), [](auto& m, std::int64_t x) { m.options.output_size(x); },
      std::int64_t{2}, std::int64_t{3}));
  CHECK(option(
      nn::AdaptiveMaxPool1d(2), [](auto& m, std::int64_t x) { m.options.output_size(x); },
      std::int64_t{2}, std::int64_t{3}));
  CHECK(option(
      nn::LPPool2d(2, 2), [](auto& m, double x) { m.options.norm_type(x); }, 2.0, 3.0));
  CHECK(option(
      nn::FractionalMaxPool2d(nn::FractionalMaxPool2dOptions(2).output_size(1)),
      [](auto& m, Tensor x) { m.options._random_samples(x); }, Tensor(), torch::zeros({1, 1, 2})));
  CHECK(option(
      nn::ConstantPad2d(1, 0), [](auto& m, double x) { m.options.value(x); }, 0.0, 1.0));
  CHECK(option(
      nn::ReflectionPad1d(1),
      [](auto& m, std::int64_t x) {
        m.options.padding({x, x});
      },
      std::int64_t{1}, std::int64_t{2}));
  CHECK(option(
      nn::LeakyReLU(), [](auto& m, double x) { m.options.negative_slope(x); }, 0.01, 0.2));
  CHECK(option(
      nn::ELU(), [](auto& m, double x) { m.options.alpha(x); }, 1.0, 2.0));
  CHECK(option(
      nn::ReLU(), [](auto& m, bool x) { m.options.inplace(x); }, false, true));
  CHECK(option(
      nn::GELU(), [](auto& m, std::string x) { m.options.approximate(x); }, std::string("none"),
      std::string("tanh")));
  CHECK(option(
      nn::Softmax(1), [](auto& m, std::int64_t x) { m.options.dim(x); }, std::int64_t{1},
      std::int64_t{0}));
  CHECK(option(
      nn::Hardtanh(), [](auto& m, double x) { m.options.max_val(x); }, 1.0, 2.0));
  CHECK(option(
      nn::RReLU(), [](auto& m, double x) { m.options.upper(x); }, 0.3, 0.4));
  CHECK(option(
      nn::Threshold(0.1, 20), [](auto& m, double x) { m.options.value(x); }, 20.0, 10.0));
  CHECK(option(
      nn::Embedding(4, 4), [](auto& m, std::optional<double> x) { m.options.max_norm(x); },
      std::optional<double>(), std::optional(1.0)));
  CHECK(option(
      nn::Embedding(4, 4), [](auto& m, std::optional<std::int64_t> x) { m.options.padding_idx(x); },
      std::optional<std::int64_t>(), std::optional<std::int64_t>(1)));
  CHECK(option(
      nn::Embedding(4, 4), [](auto& m, bool x) { m.options.sparse(x); }, false, true));
  CHECK(is_noticed(
      nn::EmbeddingBag(4, 4), [](auto& m) { m.options.mode(torch::kSum); },
      [](auto& m) { m.options.mode(torch::kMean); }));
  CHECK(option(
      nn::LSTM(nn::LSTMOptions(4, 4).num_layers(2)),
      [](auto& m, double x) { m.options_base.dropout(x); }, 0.0, 0.5));
  CHECK(option(
      nn::GRU(4, 4), [](auto& m, bool x) { m.options_base.batch_first(x); }, false, true));
  CHECK(is_noticed(
      nn::RNN(4, 4), [](auto& m) { m.options_base.mode(torch::kRNN_RELU); },
      [](auto& m) { m.options_base.mode(torch::kRNN_TANH); }));
  CHECK(is_noticed(
      nn::RNNCell(4, 4), [](auto& m) { m.options.nonlinearity(torch::kReLU); },
      [](auto& m) { m.options.nonlinearity(torch::kTanh); }));
  CHECK(option(
      nn::MultiheadAttention(4, 2), [](auto& m, double x) { m.options.dropout(x); }, 0.0, 0.5));
  CHECK(is_noticed(
      nn::TransformerEncoderLayer(4, 2), [](auto& m) { m.options.activation(torch::kGELU); },
      [](auto& m) { m.options.activation(torch::kReLU); }));
  CHECK(option(
      nn::Upsample(), [](auto& m, std::vector<double> x) { m.options.scale_factor(x); },
      std::vector<double>{2}, std::vector<double>{3}));
  CHECK(is_noticed(
      nn::Upsample(nn::UpsampleOptions().mode(torch::kNearest)),
      [](auto& m) { m.options.mode(torch::kBilinear); },
      [](auto& m) { m.options.mode(torch::kNearest); }));
  CHECK(option(
      nn::PixelShuffle(2), [](auto& m, std::int64_t x) { m.options.upscale_factor(x); },
      std::int64_t{2}, std::int64_t{3}));
  CHECK(option(
      nn::Flatten(), [](auto& m, std::int64_t x) { m.options.start_dim(x); }, std::int64_t{1},
      std::int64_t{0}));
  CHECK(option(
      nn::CrossEntropyLoss(), [](auto& m, double x) { m.options.label_smoothing(x); }, 0.0, 0.1));
  CHECK(is_noticed(
      nn::MSELoss(), [](auto& m) { m.options.reduction(torch::kSum); },
      [](auto& m) { m.options.reduction(torch::kMean); }));
  CHECK(option(
      nn::SmoothL1Loss(), [](auto& m, double x) { m.options.beta(x); }, 1.0, 0.5));
  CHECK(option(
      nn::CosineSimilarity(), [](auto& m, double x) { m.options.eps(x); }, 1e-8, 1e-6));
}

TEST_CASE(
    "a member tensor that is exchanged, the mode of a module inside, and another module in its "
    "place are noticed") {
  torch::nn::Linear linear(3, 2);
  const Tensor first = linear->weight, other = torch::zeros({2, 3});
  CHECK(is_noticed(
      // the registered one stays what it was
      linear, [&](auto& m) { m.weight = other; }, [&](auto& m) { m.weight = first; }));

  torch::nn::Sequential net(torch::nn::Linear(3, 3), torch::nn::Tanh(), torch::nn::BatchNorm1d(3));
  CHECK(is_noticed(
      net, [](auto& m) { m.children()[2]->eval(); }, [](auto& m) { m.children()[2]->train(); }));
  ModuleReader reader;
  torch::nn::Sequential other_net(torch::nn::Linear(3, 3), torch::nn::ReLU());
  CHECK(module_state(reader, other_net) != module_state(reader, net));
}

TEST_CASE("a module of the user's own that derives from one of LibTorch's has its options") {
  struct Scheduled : torch::nn::DropoutImpl {
    double unseen = 1;
    Scheduled() : torch::nn::DropoutImpl(torch::nn::DropoutOptions(0.5)) {}
  };
  const auto module = std::make_shared<Scheduled>();
  ModuleReader reader;
  const std::string before = module_state(reader, module);
  module->options.p(0.1);
  CHECK(module_state(reader, module) != before);
  module->options.p(0.5);
  CHECK(module_state(reader, module) == before);
  module->unseen = 2;  // nobody can see that
  CHECK(module_state(reader, module) == before);
}

TEST_CASE(
    "the signature knows which tensors the parameters and buffers are, and that two share memory") {
  ModelTensors model{.parameters = {{"weight", torch::ones({4}).requires_grad_()},
                                    {"tied", torch::ones({4}).requires_grad_()}},
                     .buffers = {{"scale", torch::ones({4})}}};
  Tensor &weight = model.parameters[0].tensor, &tied = model.parameters[1].tensor,
         &scale = model.buffers[0].tensor;
  const StepArguments arguments = arguments_of(torch::ones({2}));
  const auto signature = [&] { return signature_of(model, {}, arguments); };
  const std::string apart = signature();
  const Tensor own = tied.data();
  tied.set_data(weight.data());
  CHECK(signature() != apart);
  tied.set_data(own);
  CHECK(signature() == apart);
  for (Tensor* t : {&weight, &scale}) {
    const Tensor first = *t;
    *t = torch::ones({4}).requires_grad_(first.requires_grad());
    CHECK(signature() != apart);
    *t = first;
    CHECK(signature() == apart);
  }

  const std::string storages = storages_of(model);
  weight.set_data(torch::ones({4}));
  CHECK(signature() == apart);  // the same tensor: replays read it where it is now
  CHECK(storages_of(model) != storages);
}
