# What find_package(reprise) answers, where no LibTorch can be found. Each case is configured in a project of its own, in a second:
# nothing is compiled. The prefix has a space in its path.
#
#   cmake -D SOURCE_DIR=<Reprise> -D WORK_DIR=<scratch> -P test/packages/find_package.cmake

cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${WORK_DIR}")
set(prefix "${WORK_DIR}/the prefix")
set(configure "-S;${SOURCE_DIR};-B;${WORK_DIR}/build;-G;Ninja;-DREPRISE_LIBTORCH=OFF;-DREPRISE_BUILD_TESTS=OFF;-DREPRISE_BUILD_EXAMPLES=OFF;-DREPRISE_BUILD_BENCH=OFF")
foreach(options IN ITEMS "${configure}" "--install;${WORK_DIR}/build;--prefix;${prefix}")
  execute_process(COMMAND ${CMAKE_COMMAND} ${options} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
endforeach()

set(minimum 3.25)  # of the project that asks
set(asked_for reprise)

# expect(<case> <FINDS|REFUSES> <regex> <arguments of find_package after the name>...)
function(expect case answer regex)
  list(JOIN ARGN " " arguments)
  file(WRITE "${WORK_DIR}/${case}/CMakeLists.txt" "cmake_minimum_required(VERSION ${minimum})\nproject(asks CXX)\n"
    "find_package(${asked_for} ${arguments})\n"
    "message(STATUS \"found \${reprise_FOUND}, core \${reprise_core_FOUND}, libtorch \${reprise_libtorch_FOUND}, version \${reprise_VERSION}\")\n"
    "if(reprise_FOUND)\n  get_target_property(folders reprise::reprise INTERFACE_INCLUDE_DIRECTORIES)\n  message(STATUS \"headers in \${folders}\")\nendif()\n")
  set(result 0)
  foreach(generator IN ITEMS Ninja "Unix Makefiles")
    execute_process(COMMAND ${CMAKE_COMMAND} -S "${WORK_DIR}/${case}" -B "${WORK_DIR}/${case}/${generator}" -G "${generator}" -Werror=dev
      "-DCMAKE_PREFIX_PATH=${prefix}" OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE result)
    string(REGEX REPLACE "[ \n]+" " " said "${said}")
    if(NOT said MATCHES "${regex}" OR (answer STREQUAL "FINDS" AND result) OR (answer STREQUAL "REFUSES" AND NOT result))
      message(FATAL_ERROR "${case}, ${generator}: it should be one that ${answer}, and say ${regex}, but it returned ${result} and said\n${said}")
    endif()
  endforeach()
endfunction()

file(STRINGS "${SOURCE_DIR}/include/reprise/base/version.hpp" numbers REGEX "^#define REPRISE_VERSION_")
list(TRANSFORM numbers REPLACE "^.* " "")
list(JOIN numbers "." version)
list(GET numbers 0 major)
list(GET numbers 1 minor)
math(EXPR next "${minor} + 1")

expect(plain FINDS "found 1, core TRUE, libtorch , version ${version} -- headers in .*/the prefix/include" REQUIRED)
expect(same_minor FINDS "version ${version}" ${major}.${minor} CONFIG REQUIRED)
expect(core FINDS "core TRUE, libtorch ," REQUIRED COMPONENTS core)
expect(optional FINDS "core TRUE, libtorch FALSE" REQUIRED OPTIONAL_COMPONENTS libtorch)
expect(unknown_optional FINDS "found 1, core TRUE" REQUIRED OPTIONAL_COMPONENTS python)
expect(range FINDS "version ${version}" "${major}.${minor}...<${major}.${next}" REQUIRED)
expect(next_minor REFUSES "compatible with requested version \"${major}.${next}\".*version: ${version}" ${major}.${next} REQUIRED)
expect(wrong_component REFUSES "reprise has no component torch; there are core and libtorch" REQUIRED COMPONENTS torch)
expect(wrong_component_asked_softly FINDS "reprise has no component torch; .*found 0" COMPONENTS torch)
expect(hidden REFUSES "LibTorch: no TorchConfig.cmake was found; put LibTorch's folder into CMAKE_PREFIX_PATH" REQUIRED COMPONENTS libtorch)

set(minimum 3.5)  # whose policies know no IN_LIST
expect(old_policies FINDS "found 1, core TRUE" REQUIRED COMPONENTS core)
set(minimum 3.25)
set(asked_for Reprise)
expect(capital REFUSES "the package is called reprise, in small letters" REQUIRED)
set(asked_for reprise)

# Folders that are named absolutely: inside the prefix what is installed can be moved as well, outside of it that is refused.
execute_process(COMMAND ${CMAKE_COMMAND} ${configure} "-DCMAKE_INSTALL_PREFIX=${WORK_DIR}/whole" "-DCMAKE_INSTALL_INCLUDEDIR=${WORK_DIR}/whole/headers"
  "-DCMAKE_INSTALL_DATADIR=${WORK_DIR}/whole/share" OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --install "${WORK_DIR}/build" OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
set(prefix "${WORK_DIR}/moved whole")
file(RENAME "${WORK_DIR}/whole" "${prefix}")
expect(absolute FINDS "headers in [^ ]*/moved whole/headers" REQUIRED)
execute_process(COMMAND ${CMAKE_COMMAND} ${configure} -DCMAKE_INSTALL_INCLUDEDIR=/elsewhere/include RESULT_VARIABLE result OUTPUT_QUIET ERROR_VARIABLE said)
if(NOT result OR NOT said MATCHES "CMAKE_INSTALL_INCLUDEDIR is /elsewhere/include, which is not inside")
  message(FATAL_ERROR "headers outside of the prefix: cmake returned ${result} and said\n${said}")
endif()
