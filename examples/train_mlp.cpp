#include "support/train_main.hpp"

int main(int argc, char** argv) {
  return examples::train_main(
      argc, argv,
      {.program = "train_mlp",
       .about =
           "Trains a multilayer perceptron (784-1024-1024-1024-10, dropout) on synthetic digits.",
       .model = "mlp"});
}
