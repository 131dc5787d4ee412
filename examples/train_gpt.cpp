#include "support/train_main.hpp"

int main(int argc, char** argv) {
  return examples::train_main(argc, argv,
                              {.program = "train_gpt",
                               .about = "Trains GPT-2 small to continue synthetic sequences.",
                               .model = "gpt2",
                               .size_flag = "--seq"});
}
