// SPDX-License-Identifier: Apache-2.0
// Starts programs that inherit three streams and nothing else: no child keeps a descriptor that a library has
// opened in this process.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/process/this_process.h"
#include "common/result.h"
#include "common/unique_fd.h"

namespace ferry {

struct SpawnOptions {
  int in = -1;                                ///< a descriptor; -1: /dev/null
  int out = -1;                               ///< like `in`
  int err = -1;                               ///< like `in`
  bool environment = true;                    ///< inherits ours; false: none
  bool own_session = false;                   ///< a Ctrl-C in our terminal does not reach it
  std::optional<Environment> variables = {};  ///< its whole environment; absent: see `environment`
  int folder = -1;                            ///< an open folder to work in; -1: ours
};

/// An unnamed file in memory with that text, at its beginning. As a child's input or output it is never full,
/// and no other process waits for it to be read.
Result<UniqueFd> memory_file(std::string_view text);

/// Pointers to the words and a null pointer, as execve(2) takes them; it writes to no word.
std::vector<char*> pointers_to(const std::vector<std::string>& words);

/// The folder of this process's program, which has Ferry's other programs, too.
Result<std::filesystem::path> program_folder();

/// The program of that name in program_folder(), else the bare name for PATH to find.
std::filesystem::path program_beside(const std::string& name);

/// Starts `program`, looked up in PATH if its name has no '/', with `words` as its argv. Returns its process
/// ID, for reap(), or the errno of the start.
Result<int> spawn(const std::filesystem::path& program, const std::vector<std::string>& words,
                  const SpawnOptions& options);

/// Waits for a child's end. Returns its exit status, or 128 + a signal's number, like shells; 128: no such
/// child, or the kernel has reaped it.
int reap(int pid);

struct ProgramOutput {
  int status = 0;  ///< as reap() returns it
  std::string text = {};
};

struct OutputLimits {
  std::size_t bytes = std::size_t{1} << 20U;
  std::optional<std::chrono::milliseconds> time = {};  ///< absent: none
};

/// Starts a program as spawn() does and waits for its end and its output; `options.out` does not count.
/// `heard` gets its standard error as it comes, cut anywhere; absent: `options.err` counts. Output that a
/// child of the program writes after the program's end is lost. Errors: those of spawn();
/// std::errc::file_too_large: more bytes than the limit; Errc::unreachable: no end within the limit. Then the
/// program is ended, and with `own_session` all that it has started in its session's first group. A process
/// that is stuck in the kernel may outlive the call.
Result<ProgramOutput> run_for_output(const std::filesystem::path& program,
                                     const std::vector<std::string>& words, SpawnOptions options,
                                     const OutputLimits& limits,
                                     const std::function<void(std::string_view)>& heard = {});

}  // namespace ferry
