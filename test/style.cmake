# scripts/style finds what it is there to find, and nothing in the project: SOURCE_DIR, PYTHON,
# WORK_DIR.

cmake_policy(VERSION 3.25)

if(NOT PYTHON)
  message(STATUS "no python3 here: scripts/style is not run")
  return()
endif()

# expect(<text of a file> <its name> <what is said of it>): nothing is said if the last is empty.
function(expect text name said)
  file(REMOVE_RECURSE "${WORK_DIR}")
  file(COPY "${SOURCE_DIR}/.clang-format" DESTINATION "${WORK_DIR}")
  file(WRITE "${WORK_DIR}/page.md" "# Page\n\n## A heading\n")
  file(WRITE "${WORK_DIR}/${name}" "${text}")
  execute_process(
    COMMAND "${PYTHON}" "${SOURCE_DIR}/scripts/style" --root "${WORK_DIR}" "${WORK_DIR}/${name}"
    RESULT_VARIABLE failed ERROR_VARIABLE errors OUTPUT_VARIABLE output)
  if(said STREQUAL "")
    if(failed)
      message(SEND_ERROR "scripts/style refuses\n${text}\n${errors}")
    endif()
  elseif(NOT failed OR NOT errors MATCHES "^${name}:[0-9]+: ${said}")
    message(SEND_ERROR "scripts/style should say '${said}' of\n${text}\nand says '${errors}'")
  endif()
endfunction()

string(REPEAT "word " 20 hundred)  # 100 columns with the blank at its end
string(REPEAT "x" 101 long)
expect("${hundred}end\n" text.md "103 columns")
expect("- ${hundred}\n" text.md "102 columns")
expect("${hundred}\n" text.md "")
expect("| ${hundred} |\n|---|\n" text.md "")
expect("```\n${hundred}end. One. Two.\n```\n" text.md "")
expect("[link](https://example.org/${long})\n" text.md "")
expect("One sentence. Another one.\n" text.md "a second sentence, 'Another")
expect("One sentence, e.g. this.\nVersion 2.13 is one.\n" text.md "")
expect("[a page](page.md#a-heading)\n" text.md "")
expect("[a page](page.md#another)\n" text.md "no heading #another in page.md")
expect("[no page](other.md)\n" text.md "no file other.md")
expect("// ${hundred}end\n" text.hpp "106 columns")
expect("//   ${hundred}end\n" text.hpp "")
expect("//   ${hundred}${hundred}\n" text.hpp "205 columns")
expect("const char* text = R\"(\n${long}\n)\";\n" text.hpp "")

# A page that --fix has written again reads the same, and is left alone from then on.
file(WRITE "${WORK_DIR}/fix.md" "- One, `a b`. Then ${hundred}and ${hundred}so on.\n")
execute_process(COMMAND "${PYTHON}" "${SOURCE_DIR}/scripts/style" --fix --root "${WORK_DIR}" "${WORK_DIR}/fix.md"
                RESULT_VARIABLE failed)
file(READ "${WORK_DIR}/fix.md" fixed)
if(failed OR NOT fixed MATCHES "^- One, `a b`.\n  Then word [^\n]*word\n  word [^\n]*word\n  [^\n]*so on.\n$")
  message(SEND_ERROR "scripts/style --fix wrote\n${fixed}")
endif()

execute_process(COMMAND "${PYTHON}" "${SOURCE_DIR}/scripts/style" --root "${SOURCE_DIR}"
                RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE errors)
if(output)
  message(STATUS "${output}")
endif()
if(failed)
  message(SEND_ERROR "scripts/style:\n${errors}\nscripts/style --fix wraps Markdown and formats C++")
endif()
