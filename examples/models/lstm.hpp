#pragma once
// An LSTM language model: the "medium" network of Zaremba et al., "Recurrent Neural Network
// Regularization" (2014), with the names of PyTorch's word_language_model example. Every batch
// starts from a zero state: a step depends on its batch alone.
//
//   vocabulary 10,000, two layers of 650, dropout 0.5: 19,780,400 parameters
//   encoder.weight  rnn.weight_ih_l0  rnn.bias_hh_l1  decoder.weight  decoder.bias

#include <tuple>

#include <torch/torch.h>

#include "block.hpp"

namespace models {

struct LSTMOptions {
  std::int64_t vocabulary = 10'000;
  std::int64_t width = 650;
  std::int64_t layers = 2;
  double dropout = 0.5;
};

struct LSTMModelImpl : torch::nn::Module {
  explicit LSTMModelImpl(const LSTMOptions& options = {})
      : drop(register_module("drop", torch::nn::Dropout(options.dropout))),
        encoder(
            register_module("encoder", torch::nn::Embedding(options.vocabulary, options.width))),
        rnn(register_module("rnn", stack(options))),
        decoder(register_module("decoder", torch::nn::Linear(options.width, options.vocabulary))) {
    torch::nn::init::uniform_(encoder->weight, -0.1, 0.1);
    torch::nn::init::uniform_(decoder->weight, -0.1, 0.1);
    torch::nn::init::zeros_(decoder->bias);
  }

  /// Tokens [time, batch] to logits [time * batch, vocabulary].
  torch::Tensor forward(const torch::Tensor& tokens) {
    const auto output = std::get<0>(run_block(rnn, drop(encoder(tokens))));
    return decoder(drop(output)).flatten(0, 1);
  }

  torch::nn::Dropout drop;
  torch::nn::Embedding encoder;
  torch::nn::LSTM rnn;
  torch::nn::Linear decoder;

 private:
  static torch::nn::LSTM stack(const LSTMOptions& options) {
    return torch::nn::LSTM(torch::nn::LSTMOptions(options.width, options.width)
                               .num_layers(options.layers)
                               .dropout(options.dropout));
  }
};
TORCH_MODULE(LSTMModel);

}  // namespace models
