# What cmake/RepriseLibTorch.cmake gets along with, on folders that look like the LibTorch that is meant. Each case is configured in a
# project of its own, in seconds: nothing is compiled against LibTorch.
#
#   cmake -D SOURCE_DIR=<Reprise> -D WORK_DIR=<scratch> -P test/packages/libtorch.cmake

cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${WORK_DIR}")

# expect(<case> <regex> [<cmake option>...]): what the project prints about reprise::torch
file(WRITE "${WORK_DIR}/CMakeLists.txt" [[
cmake_minimum_required(VERSION 3.25)
project(asks CXX)
include("${SOURCE_DIR}/cmake/RepriseLibTorch.cmake")
if(NOT TARGET reprise::torch)
  message(STATUS "problem: ${reprise_torch_problem}")
  return()
endif()
get_target_property(definitions reprise::torch INTERFACE_COMPILE_DEFINITIONS)
get_target_property(libraries reprise::torch INTERFACE_LINK_LIBRARIES)
message(STATUS "found ${reprise_torch_version}, old ABI ${reprise_torch_old_abi}, definitions ${definitions}, libraries ${libraries}")
]])
function(expect case regex)
  execute_process(COMMAND ${CMAKE_COMMAND} -S "${WORK_DIR}" -B "${WORK_DIR}/${case}/build" -G Ninja "-DSOURCE_DIR=${SOURCE_DIR}"
    "-DCMAKE_PREFIX_PATH=${WORK_DIR}/${case}" ${ARGN} OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE result)
  if(result OR NOT said MATCHES "${regex}")
    message(FATAL_ERROR "${case}: nothing in what cmake said matches ${regex}\n${said}")
  endif()
endfunction()

# make(<case> <folder of the package> <text of TorchConfig.cmake> [CUDA])
function(make case folder text)
  set(prefix "${WORK_DIR}/${case}")
  file(MAKE_DIRECTORY "${prefix}/include/ATen" "${prefix}/lib")
  file(WRITE "${prefix}/${folder}/TorchConfig.cmake" "${text}")
  file(WRITE "${prefix}/${folder}/TorchConfigVersion.cmake" "set(PACKAGE_VERSION \"2.9.9\")\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n")
  if("CUDA" IN_LIST ARGN)
    file(TOUCH "${prefix}/lib/libtorch_cuda.so")
  endif()
endfunction()

set(plain "add_library(torch INTERFACE IMPORTED)\nset(TORCH_LIBRARIES torch)\nset(Torch_FOUND TRUE)\n")

make(none nowhere "")
file(REMOVE_RECURSE "${WORK_DIR}/none/nowhere")
expect(none "problem: no TorchConfig.cmake was found; put LibTorch's folder into CMAKE_PREFIX_PATH")

make(cpu share/cmake/Torch "${plain}")
expect(cpu "found 2.9.9, old ABI OFF, definitions [^ ]*NOTFOUND, libraries torch\n")

make(vcpkg share/torch "${plain}")
expect(vcpkg "found 2.9.9, old ABI OFF")

make(old share/cmake/Torch "${plain}")
file(WRITE "${WORK_DIR}/old/share/cmake/Torch/TorchConfigVersion.cmake" "set(PACKAGE_VERSION \"2.3.1\")\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n")
expect(old "problem: version 2.3.1 in [^\n]*/old is too old; 2.4 is the oldest that works\n")

# What is named is what is looked at, whatever else lies on the way.
expect(old "found 2.9.9" "-DTorch_DIR=${WORK_DIR}/cpu/share/cmake/Torch")
expect(old "found 2.9.9" "-DTorch_DIR=${WORK_DIR}/cpu/share/cmake/Torch/")

# CMakeDeps gives its targets other names, and says them in TORCH_LIBRARIES.
make(conan . "add_library(libtorch::libtorch INTERFACE IMPORTED)\nset(TORCH_LIBRARIES libtorch::libtorch)\nset(Torch_FOUND TRUE)\n")
expect(conan "libraries libtorch::libtorch\n")

# A CUDA build without a toolkit ends every configuration that loads it.
make(cuda_without_toolkit share/cmake/Torch "message(FATAL_ERROR \"cannot find the CUDA libraries\")\n" CUDA)
expect(cuda_without_toolkit "using its CPU half.*found 2.9.9, old ABI OFF, definitions [^ ]*NOTFOUND, libraries [^\n]*libtorch_cpu.so")

make(cuda_of_old_abi share/cmake/Torch
  "set(TORCH_CXX_FLAGS \"-D_GLIBCXX_USE_CXX11_ABI=0\")\nmessage(FATAL_ERROR \"cannot find the CUDA libraries\")\n" CUDA)
expect(cuda_of_old_abi "found 2.9.9, old ABI ON, definitions _GLIBCXX_USE_CXX11_ABI=0,")

# A toolkit that the package likes, and that does not link: the same.
make(cuda_that_does_not_link share/cmake/Torch
  "add_library(torch INTERFACE IMPORTED)\ntarget_link_libraries(torch INTERFACE no_such_library_anywhere)\nset(TORCH_LIBRARIES torch)\nset(Torch_FOUND TRUE)\n" CUDA)
expect(cuda_that_does_not_link "using its CPU half")

# CUDA 12.9 has no nvToolsExt, for which LibTorch asks in two ways: by target, and by a library that is then not found.
make(cuda_without_nvtoolsext share/cmake/Torch [[
find_package(CUDAToolkit REQUIRED)
if(NOT TARGET CUDA::nvToolsExt)
  message(FATAL_ERROR "Failed to find nvToolsExt")
endif()
add_library(torch INTERFACE IMPORTED)
target_link_libraries(torch INTERFACE CUDA::nvToolsExt)
set(TORCH_LIBRARIES torch LIBNVTOOLSEXT-NOTFOUND)
set(Torch_FOUND TRUE)
]] CUDA)
file(WRITE "${WORK_DIR}/toolkit/FindCUDAToolkit.cmake"
  "if(NOT TARGET CUDA::nvtx3)\n  add_library(CUDA::nvtx3 INTERFACE IMPORTED)\nendif()\nset(CUDAToolkit_FOUND TRUE)\nset(CUDAToolkit_VERSION 12.9)\n")
expect(cuda_without_nvtoolsext "found 2.9.9, old ABI OFF, definitions [^ ]*NOTFOUND, libraries torch\n"
  "-DCMAKE_MODULE_PATH=${WORK_DIR}/toolkit")
