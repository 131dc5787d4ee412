// Padded sequences are packed: LibTorch reads their lengths on the host, behind the dispatcher.

#include <reprise_test/wild.hpp>

using namespace reprise;
using namespace reprise::testing;
using torch::Tensor;

namespace {

/// Lengths come from a mask, as they do from a data set; the optimizer is written by hand.
template <class Recurrent>
Program packing(Recurrent recurrent, bool sorted) {
  torch::manual_seed(4);
  auto embedding = torch::nn::Embedding(50, 24);
  auto loss = std::make_shared<Tensor>();
  const Tensor tokens = torch::randint(1, 50, {6, 5});
  for (int row = 0; row < 6; ++row) {
    const int length = sorted ? 5 - row / 2 : 1 + (row * 3) % 5;
    tokens[row].slice(0, length).zero_();
  }
  std::vector<Tensor> parameters = embedding->parameters();
  for (const Tensor& p : recurrent->parameters()) parameters.push_back(p);
  return {[=](int) mutable {
            for (Tensor& p : parameters) p.mutable_grad() = Tensor();
            const Tensor lengths = (tokens != 0).sum(1);
            const auto packed = torch::nn::utils::rnn::pack_padded_sequence(
                embedding(tokens), lengths, /*batch_first=*/true, /*enforce_sorted=*/sorted);
            const auto [out, state] = recurrent->forward_with_packed_input(packed);
            const auto [padded, found] = torch::nn::utils::rnn::pad_packed_sequence(out, true);
            Tensor now = padded.pow(2).sum() / found.sum();
            now.backward();
            const torch::NoGradGuard no_grad;
            for (Tensor& p : parameters) p.sub_(p.grad() * 0.05);
            *loss = now.detach();
          },
          [=] {
            std::vector<Tensor> all = parameters;
            for (const Tensor& p : parameters) all.push_back(p.grad());
            all.push_back(*loss);
            return all;
          }};
}

}  // namespace

TEST_CASE("packed sequences through a bidirectional LSTM", "[wild]") {
  for (const bool sorted : {true, false})
    check_wild([=] {
      torch::manual_seed(3);
      return packing(
          torch::nn::LSTM(torch::nn::LSTMOptions(24, 16).bidirectional(true).batch_first(true)),
          sorted);
    });
}

TEST_CASE("packed sequences through a GRU with dropout", "[wild]") {
  check_wild([] {
    torch::manual_seed(3);
    return packing(
        torch::nn::GRU(torch::nn::GRUOptions(24, 16).num_layers(2).dropout(0.3).batch_first(true)),
        false);
  });
}
