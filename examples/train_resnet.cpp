#include "support/train_main.hpp"

int main(int argc, char** argv) {
  return examples::train_main(argc, argv,
                              {.program = "train_resnet",
                               .about = "Trains a ResNet on synthetic images.",
                               .model = "resnet",
                               .size_flag = "--image",
                               .variant_flag = "--depth",
                               .variants = {"18", "50", "152"}});
}
