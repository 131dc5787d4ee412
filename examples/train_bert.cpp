#include "support/train_main.hpp"

int main(int argc, char** argv) {
  return examples::train_main(
      argc, argv,
      {.program = "train_bert",
       .about = "Trains BERT-base to fill in masked tokens of synthetic sequences.",
       .model = "bert",
       .size_flag = "--seq"});
}
