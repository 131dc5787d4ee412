#include "support/train_main.hpp"

int main(int argc, char** argv) {
  return examples::train_main(
      argc, argv,
      {.program = "train_lstm",
       .about = "Trains an LSTM language model (two layers of 650) on synthetic sequences.",
       .model = "lstm",
       .size_flag = "--seq"});
}
