// SPDX-License-Identifier: Apache-2.0
// The requests of a SpawningWriter (host_writer.h) to its child (host_act.cpp): a letter, then its arguments,
// in which "|" stands for a NUL here.
//
// The answer is an int, then at most 64 KiB of text. The int is 0, an errno, or a program's negated exit
// status. During a batch, 0 and "." follow each write but the last while WriteProgress::each_is_waited_for().
#pragma once

#include <string>
#include <string_view>

namespace ferry {

enum class ActKind : char {
  prepare = 'p',         ///< acts that change something are about to come; has no answer
  write = 'w',           ///< PATH|VALUE
  write_if_unset = 'n',  ///< PATH|VALUE, in a batch alone: EEXIST if something is set
  batch = 'b',        ///< wPATH|VALUE|..., up to the first error; WriteProgress has the number of writes made
  load_module = 'm',  ///< NAME
  unload_module = 'u',   ///< NAME
  read = 'r',            ///< PATH of an attribute
  run = 'x',             ///< DEVICE|ROOT|WORDS, a program on a device; words are separated by "|"
  output = 'o',          ///< as `run`; the answer is its output
  run_or_kill = 'k',     ///< MS|ROOT|WORDS without a device, killed after MS milliseconds (ETIMEDOUT)
  output_or_kill = 'q',  ///< as `run_or_kill`; the answer is its output
  transcript = 't',      ///< as `run_or_kill`; the answer is both streams, with any exit status
  call_library = 'c',    ///< DEVICE|NAME|TEXT for the library NAME; DEVICE is empty if nothing changes
};

inline std::string act_request(ActKind kind, std::string_view arguments) {
  return static_cast<char>(kind) + std::string(arguments);
}

}  // namespace ferry
