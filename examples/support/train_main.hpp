#pragma once
// The program behind train_mlp, train_resnet and the others: they differ in the model, its name and
// one or two flags.
//
//   int main(int argc, char** argv) {
//     return examples::train_main(argc, argv, {.program = "train_bert", .about = "…", .model = "bert", .size_flag = "--seq"});
//   }

#include <string>
#include <vector>

namespace examples {

struct TrainProgram {
  std::string program{};
  std::string about{};
  std::string model{};  ///< as in the registry
  /// --seq or --image; empty: the configuration's size is the only one
  std::string size_flag{};
  std::string variant_flag{};  ///< --depth; empty: there is one model
  /// what may follow it; the first is the default. The model's name is `model` and this
  std::vector<std::string> variants{};
};

int train_main(int argc, const char* const* argv, const TrainProgram& program);

}  // namespace examples
