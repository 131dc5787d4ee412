#include "support/train_main.hpp"

int main(int argc, char** argv) {
  return examples::train_main(argc, argv,
                              {.program = "train_unet",
                               .about = "Trains a U-Net to find a disk in synthetic images.",
                               .model = "unet",
                               .size_flag = "--image"});
}
