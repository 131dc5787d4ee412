#include "support/train_main.hpp"

int main(int argc, char** argv) {
  return examples::train_main(argc, argv,
                              {.program = "train_vit",
                               .about = "Trains ViT-B/16 on synthetic images.",
                               .model = "vit",
                               .size_flag = "--image"});
}
