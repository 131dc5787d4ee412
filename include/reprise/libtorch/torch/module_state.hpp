#pragma once
// What of a model's modules decides which ops a step runs, beside its parameters' shapes: which
// modules there are, which of them train, and the options of LibTorch's own.
//
// ```cpp
// ModuleReader reader;
// SignatureBytes bytes;
// reader.add(bytes, *dropout);   // type, address, whether it trains, p and inplace, member tensors
// ```
//
// LibTorch's modules keep their options in a public member, as functions named after what they
// hold: every name that any of them has is asked for here, so that a module's options are those of
// the names that it knows. Which of LibTorch's types a module is (or derives from) is found out
// once for each C++ type. Options of modules that the user has written are theirs: nobody can see
// these.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <unordered_map>
#include <utility>
#include <vector>

#include <reprise/libtorch/torch/signature_bytes.hpp>

// LibTorch's modules that have options or members of their own: declared here, so that including
// this needs none of torch::nn's headers. A program whose model has such modules includes them.
namespace torch::nn {
class Module;
using ModulesWithOptionsForReprise = std::tuple<
    // most models have these
    class LinearImpl, class ReLUImpl, class Conv2dImpl, class BatchNorm2dImpl, class DropoutImpl,
    class LayerNormImpl, class GELUImpl, class EmbeddingImpl,
    // the others
    class Conv1dImpl, class Conv3dImpl, class ConvTranspose1dImpl, class ConvTranspose2dImpl,
    class ConvTranspose3dImpl, class BatchNorm1dImpl, class BatchNorm3dImpl,
    class InstanceNorm1dImpl, class InstanceNorm2dImpl, class InstanceNorm3dImpl,
    class GroupNormImpl, class LocalResponseNormImpl, class CrossMapLRN2dImpl, class Dropout2dImpl,
    class Dropout3dImpl, class AlphaDropoutImpl, class FeatureAlphaDropoutImpl, class BilinearImpl,
    class FlattenImpl, class UnflattenImpl, class FoldImpl, class UnfoldImpl,
    class EmbeddingBagImpl, class MaxPool1dImpl, class MaxPool2dImpl, class MaxPool3dImpl,
    class AvgPool1dImpl, class AvgPool2dImpl, class AvgPool3dImpl, class AdaptiveMaxPool1dImpl,
    class AdaptiveMaxPool2dImpl, class AdaptiveMaxPool3dImpl, class AdaptiveAvgPool1dImpl,
    class AdaptiveAvgPool2dImpl, class AdaptiveAvgPool3dImpl, class MaxUnpool1dImpl,
    class MaxUnpool2dImpl, class MaxUnpool3dImpl, class FractionalMaxPool2dImpl,
    class FractionalMaxPool3dImpl, class LPPool1dImpl, class LPPool2dImpl,
    class ReflectionPad1dImpl, class ReflectionPad2dImpl, class ReflectionPad3dImpl,
    class ReplicationPad1dImpl, class ReplicationPad2dImpl, class ReplicationPad3dImpl,
    class ConstantPad1dImpl, class ConstantPad2dImpl, class ConstantPad3dImpl, class ZeroPad2dImpl,
    class PixelShuffleImpl, class PixelUnshuffleImpl, class UpsampleImpl, class ELUImpl,
    class SELUImpl, class CELUImpl, class HardshrinkImpl, class HardtanhImpl, class LeakyReLUImpl,
    class SoftmaxImpl, class SoftminImpl, class LogSoftmaxImpl, class PReLUImpl, class ReLU6Impl,
    class RReLUImpl, class GLUImpl, class SoftplusImpl, class SoftshrinkImpl, class ThresholdImpl,
    class MultiheadAttentionImpl, class TransformerEncoderLayerImpl,
    class TransformerDecoderLayerImpl, class TransformerEncoderImpl, class TransformerDecoderImpl,
    class TransformerImpl, class RNNImpl, class LSTMImpl, class GRUImpl, class RNNCellImpl,
    class LSTMCellImpl, class GRUCellImpl, class AdaptiveLogSoftmaxWithLossImpl,
    class CosineSimilarityImpl, class PairwiseDistanceImpl, class L1LossImpl, class KLDivLossImpl,
    class MSELossImpl, class BCELossImpl, class HingeEmbeddingLossImpl, class MultiMarginLossImpl,
    class CosineEmbeddingLossImpl, class SmoothL1LossImpl, class HuberLossImpl,
    class MultiLabelMarginLossImpl, class SoftMarginLossImpl, class MultiLabelSoftMarginLossImpl,
    class TripletMarginLossImpl, class TripletMarginWithDistanceLossImpl, class CTCLossImpl,
    class PoissonNLLLossImpl, class MarginRankingLossImpl, class NLLLossImpl,
    class CrossEntropyLossImpl, class BCEWithLogitsLossImpl>;
}  // namespace torch::nn

namespace reprise::tensors {

template <class T>
struct IsFunction : std::false_type {};
template <class Signature>
struct IsFunction<std::function<Signature>> : std::true_type {};

/// One option, of any type that LibTorch's options have.
template <class Option>
void add_option(SignatureBytes& bytes, const Option& option) {
  const auto add_all = [&bytes](const auto& options) {
    bytes.add(static_cast<std::int64_t>(options.size()));
    for (const auto& one : options) add_option(bytes, one);
  };
  if constexpr (std::is_same_v<Option, bool>) bytes.add(option);
  else if constexpr (std::is_integral_v<Option> || std::is_enum_v<Option>)
    bytes.add(static_cast<std::int64_t>(option));
  else if constexpr (std::is_floating_point_v<Option>)
    bytes.add(std::bit_cast<std::int64_t>(static_cast<double>(option)));
  else if constexpr (std::is_convertible_v<Option, std::string>) bytes.add(std::string(option));
  else if constexpr (std::is_base_of_v<at::Tensor, Option>) bytes.add_identity(option);
  else if constexpr (IsFunction<Option>::value) {  // what it has captured cannot be compared
    bytes.add(static_cast<bool>(option));
    bytes.add_address(&option.target_type());
  } else if constexpr (requires { option.valueless_by_exception(); }) {  // one of several
    bytes.add(static_cast<std::int64_t>(option.index()));
    std::visit([&bytes](const auto& chosen) { add_option(bytes, chosen); }, option);
  } else if constexpr (requires {
                         option.has_value();
                         *option;
                       }) {
    bytes.add(option.has_value());
    if (option.has_value()) add_option(bytes, *option);
  } else if constexpr (requires { (*option).begin(); }) add_all(*option);  // ExpandingArray
  else if constexpr (requires {
                       option.begin();
                       option.size();
                     })
    add_all(option);
  else if constexpr (requires {
                       option.first;
                       option.second;
                     }) {
    add_option(bytes, option.first);
    add_option(bytes, option.second);
    // torch::kMean and its kind
  } else static_assert(std::is_empty_v<Option>, "an option of a type that is not known here");
}

/// All options that go by these names.
template <class Options>
void add_options(SignatureBytes& bytes, const Options& o) {
  const auto add = [&bytes](const auto& option) { add_option(bytes, option); };
  if constexpr (requires { o.p(); }) add(o.p());
  if constexpr (requires { o.inplace(); }) add(o.inplace());
  // normalization
  if constexpr (requires { o.eps(); }) add(o.eps());
  if constexpr (requires { o.momentum(); }) add(o.momentum());
  if constexpr (requires { o.affine(); }) add(o.affine());
  if constexpr (requires { o.track_running_stats(); }) add(o.track_running_stats());
  if constexpr (requires { o.num_features(); }) add(o.num_features());
  if constexpr (requires { o.normalized_shape(); }) add(o.normalized_shape());
  if constexpr (requires { o.elementwise_affine(); }) add(o.elementwise_affine());
  if constexpr (requires { o.num_groups(); }) add(o.num_groups());
  if constexpr (requires { o.num_channels(); }) add(o.num_channels());
  if constexpr (requires { o.size(); }) add(o.size());
  if constexpr (requires { o.alpha(); }) add(o.alpha());
  if constexpr (requires { o.beta(); }) add(o.beta());
  if constexpr (requires { o.k(); }) add(o.k());
  // convolutions, pools, padding, folding
  if constexpr (requires { o.in_channels(); }) add(o.in_channels());
  if constexpr (requires { o.out_channels(); }) add(o.out_channels());
  if constexpr (requires { o.kernel_size(); }) add(o.kernel_size());
  if constexpr (requires { o.stride(); }) add(o.stride());
  if constexpr (requires { o.padding(); }) add(o.padding());
  if constexpr (requires { o.dilation(); }) add(o.dilation());
  if constexpr (requires { o.groups(); }) add(o.groups());
  if constexpr (requires { o.bias(); }) add(o.bias());
  if constexpr (requires { o.transposed(); }) add(o.transposed());
  if constexpr (requires { o.output_padding(); }) add(o.output_padding());
  if constexpr (requires { o.padding_mode(); }) add(o.padding_mode());
  if constexpr (requires { o.ceil_mode(); }) add(o.ceil_mode());
  if constexpr (requires { o.count_include_pad(); }) add(o.count_include_pad());
  if constexpr (requires { o.divisor_override(); }) add(o.divisor_override());
  if constexpr (requires { o.output_size(); }) add(o.output_size());
  if constexpr (requires { o.output_ratio(); }) add(o.output_ratio());
  if constexpr (requires { o._random_samples(); }) add(o._random_samples());
  if constexpr (requires { o.norm_type(); }) add(o.norm_type());
  if constexpr (requires { o.value(); }) add(o.value());
  if constexpr (requires { o.upscale_factor(); }) add(o.upscale_factor());
  if constexpr (requires { o.downscale_factor(); }) add(o.downscale_factor());
  if constexpr (requires { o.scale_factor(); }) add(o.scale_factor());
  if constexpr (requires { o.align_corners(); }) add(o.align_corners());
  if constexpr (requires { o.mode(); }) add(o.mode());
  // linear layers and shapes
  if constexpr (requires { o.in_features(); }) add(o.in_features());
  if constexpr (requires { o.in1_features(); }) add(o.in1_features());
  if constexpr (requires { o.in2_features(); }) add(o.in2_features());
  if constexpr (requires { o.out_features(); }) add(o.out_features());
  if constexpr (requires { o.start_dim(); }) add(o.start_dim());
  if constexpr (requires { o.end_dim(); }) add(o.end_dim());
  if constexpr (requires { o.dim(); }) add(o.dim());
  if constexpr (requires { o.dimname(); }) add(o.dimname());
  if constexpr (requires { o.sizes(); }) add(o.sizes());
  if constexpr (requires { o.namedshape(); }) add(o.namedshape());
  // activations
  if constexpr (requires { o.negative_slope(); }) add(o.negative_slope());
  if constexpr (requires { o.lambda(); }) add(o.lambda());
  if constexpr (requires { o.min_val(); }) add(o.min_val());
  if constexpr (requires { o.max_val(); }) add(o.max_val());
  if constexpr (requires { o.lower(); }) add(o.lower());
  if constexpr (requires { o.upper(); }) add(o.upper());
  if constexpr (requires { o.threshold(); }) add(o.threshold());
  if constexpr (requires { o.approximate(); }) add(o.approximate());
  if constexpr (requires { o.num_parameters(); }) add(o.num_parameters());
  if constexpr (requires { o.init(); }) add(o.init());
  // attention and transformers
  if constexpr (requires { o.embed_dim(); }) add(o.embed_dim());
  if constexpr (requires { o.num_heads(); }) add(o.num_heads());
  if constexpr (requires { o.dropout(); }) add(o.dropout());
  if constexpr (requires { o.add_bias_kv(); }) add(o.add_bias_kv());
  if constexpr (requires { o.add_zero_attn(); }) add(o.add_zero_attn());
  if constexpr (requires { o.kdim(); }) add(o.kdim());
  if constexpr (requires { o.vdim(); }) add(o.vdim());
  if constexpr (requires { o.d_model(); }) add(o.d_model());
  if constexpr (requires { o.nhead(); }) add(o.nhead());
  if constexpr (requires { o.num_encoder_layers(); }) add(o.num_encoder_layers());
  if constexpr (requires { o.num_decoder_layers(); }) add(o.num_decoder_layers());
  if constexpr (requires { o.dim_feedforward(); }) add(o.dim_feedforward());
  if constexpr (requires { o.activation(); }) add(o.activation());
  // embeddings
  if constexpr (requires { o.num_embeddings(); }) add(o.num_embeddings());
  if constexpr (requires { o.embedding_dim(); }) add(o.embedding_dim());
  if constexpr (requires { o.padding_idx(); }) add(o.padding_idx());
  if constexpr (requires { o.max_norm(); }) add(o.max_norm());
  if constexpr (requires { o.scale_grad_by_freq(); }) add(o.scale_grad_by_freq());
  if constexpr (requires { o.sparse(); }) add(o.sparse());
  if constexpr (requires { o.include_last_offset(); }) add(o.include_last_offset());
  // recurrent layers
  if constexpr (requires { o.input_size(); }) add(o.input_size());
  if constexpr (requires { o.hidden_size(); }) add(o.hidden_size());
  if constexpr (requires { o.num_layers(); }) add(o.num_layers());
  if constexpr (requires { o.batch_first(); }) add(o.batch_first());
  if constexpr (requires { o.bidirectional(); }) add(o.bidirectional());
  if constexpr (requires { o.proj_size(); }) add(o.proj_size());
  if constexpr (requires { o.nonlinearity(); }) add(o.nonlinearity());
  // losses and distances
  if constexpr (requires { o.reduction(); }) add(o.reduction());
  if constexpr (requires { o.weight(); }) add(o.weight());
  if constexpr (requires { o.pos_weight(); }) add(o.pos_weight());
  if constexpr (requires { o.ignore_index(); }) add(o.ignore_index());
  if constexpr (requires { o.label_smoothing(); }) add(o.label_smoothing());
  if constexpr (requires { o.log_target(); }) add(o.log_target());
  if constexpr (requires { o.log_input(); }) add(o.log_input());
  if constexpr (requires { o.full(); }) add(o.full());
  if constexpr (requires { o.margin(); }) add(o.margin());
  if constexpr (requires { o.delta(); }) add(o.delta());
  if constexpr (requires { o.swap(); }) add(o.swap());
  if constexpr (requires { o.distance_function(); }) add(o.distance_function());
  if constexpr (requires { o.blank(); }) add(o.blank());
  if constexpr (requires { o.zero_infinity(); }) add(o.zero_infinity());
  if constexpr (requires { o.keepdim(); }) add(o.keepdim());
  // adaptive softmax
  if constexpr (requires { o.n_classes(); }) add(o.n_classes());
  if constexpr (requires { o.cutoffs(); }) add(o.cutoffs());
  if constexpr (requires { o.div_value(); }) add(o.div_value());
  if constexpr (requires { o.head_bias(); }) add(o.head_bias());
}

/// The tensors that a module computes with are its members: `linear->weight = other` does not
/// register the other one.
template <class Module>
void add_members(SignatureBytes& bytes, const Module& m) {
  if constexpr (requires { m.weight; }) bytes.add_identity(m.weight);
  if constexpr (requires { m.bias; }) bytes.add_identity(m.bias);
  if constexpr (requires { m.running_mean; }) bytes.add_identity(m.running_mean);
  if constexpr (requires { m.running_var; }) bytes.add_identity(m.running_var);
  if constexpr (requires { m.num_batches_tracked; }) bytes.add_identity(m.num_batches_tracked);
  if constexpr (requires { m.weight_ih; }) bytes.add_identity(m.weight_ih);
  if constexpr (requires { m.weight_hh; }) bytes.add_identity(m.weight_hh);
  if constexpr (requires { m.bias_ih; }) bytes.add_identity(m.bias_ih);
  if constexpr (requires { m.bias_hh; }) bytes.add_identity(m.bias_hh);
  if constexpr (requires { m.in_proj_weight; }) bytes.add_identity(m.in_proj_weight);
  if constexpr (requires { m.in_proj_bias; }) bytes.add_identity(m.in_proj_bias);
  if constexpr (requires { m.bias_k; }) bytes.add_identity(m.bias_k);
  if constexpr (requires { m.bias_v; }) bytes.add_identity(m.bias_v);
  if constexpr (requires { m.q_proj_weight; }) bytes.add_identity(m.q_proj_weight);
  if constexpr (requires { m.k_proj_weight; }) bytes.add_identity(m.k_proj_weight);
  if constexpr (requires { m.v_proj_weight; }) bytes.add_identity(m.v_proj_weight);
  if constexpr (requires { m.pos_weight; }) bytes.add_identity(m.pos_weight);
}

template <class Module>
void add_module(SignatureBytes& bytes, const void* module) {
  const Module& m = *static_cast<const Module*>(module);
  if constexpr (requires { m.options_base; }) add_options(bytes, m.options_base);
  if constexpr (requires { m.options; }) add_options(bytes, m.options);
  add_members(bytes, m);
}

/// Reads modules, and remembers how each C++ type is to be read.
class ModuleReader {
 public:
  template <class Module>
  void add(SignatureBytes& bytes, const Module& module) {
    const void* whole = dynamic_cast<const void*>(&module);
    const std::type_info& type = typeid(module);
    bytes.add_address(whole);
    bytes.add_address(&type);
    bytes.add(module.is_training());
    auto known = known_.find(&type);
    if (known == known_.end()) known = known_.emplace(&type, part_of(module, whole)).first;
    const Part& part = known->second;
    if (part.add != nullptr) part.add(bytes, static_cast<const std::byte*>(whole) + part.offset);
  }

 private:
  /// Where in an object of one C++ type LibTorch's module lies, and how that is read; none where it
  /// is no module with options.
  struct Part {
    void (*add)(SignatureBytes&, const void*) = nullptr;
    std::ptrdiff_t offset = 0;
  };

  template <class Module>
  static Part part_of(const Module& module, const void* whole) {
    Part part;
    const auto look = [&]<class Known>(const Known* known) {
      if (part.add != nullptr || known == nullptr) return;
      part = {&add_module<Known>,
              reinterpret_cast<const std::byte*>(known) - static_cast<const std::byte*>(whole)};
    };
    const auto look_at_all = [&]<class... Known>(const std::tuple<Known...>*) {
      static_assert((requires { sizeof(Known); } && ...),
                    "a step of torch::nn modules needs their headers: include <torch/torch.h>");
      (look(dynamic_cast<const Known*>(&module)), ...);
    };
    look_at_all(static_cast<const torch::nn::ModulesWithOptionsForReprise*>(nullptr));
    return part;
  }

  std::unordered_map<const std::type_info*, Part> known_;
};

/// Of the model and all that is in it.
template <class Model>
[[nodiscard]] std::string module_state(ModuleReader& reader, const Model& model) {
  SignatureBytes bytes;
  const auto add = [&](const auto& module) {
    if constexpr (std::is_convertible_v<decltype(&module), const torch::nn::Module*>)
      reader.add(bytes, static_cast<const torch::nn::Module&>(module));
    else bytes.add(module.is_training());
  };
  add(*model);
  for (const auto& module : model->modules(/*include_self=*/false)) add(*module);
  return std::move(bytes).take();
}

}  // namespace reprise::tensors
