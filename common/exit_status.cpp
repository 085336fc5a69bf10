// SPDX-License-Identifier: Apache-2.0
#include "common/exit_status.h"

#include <array>

#include "common/process/standard_streams.h"

namespace ferry {

ExitStatus exit_status_of(const Error& error) noexcept {
  if (error.code == Errc::usage || error.code == Errc::invalid_config || error.code == Errc::not_found)
    return ExitStatus::usage;
  if (error.code == Errc::differs) return ExitStatus::differs;
  if (error.code == Errc::refused) return ExitStatus::refused;
  return ExitStatus::failed;
}

ExitStatus print_error(std::string_view program, const Error& error) {
  print_to_stderr("{}: {}\n", program, error.message);
  if (!error.hint.empty()) print_to_stderr("hint: {}\n", error.hint);
  return exit_status_of(error);
}

ExitStatus worse(ExitStatus a, ExitStatus b) noexcept {
  constexpr std::array kWorstFirst = {ExitStatus::failed, ExitStatus::refused, ExitStatus::usage,
                                      ExitStatus::differs};
  for (const ExitStatus status : kWorstFirst)
    if (a == status || b == status) return status;
  return ExitStatus::done;
}

ExitStatus once_written(ExitStatus status) noexcept {
  return status == ExitStatus::usage ? ExitStatus::refused : status;
}

}  // namespace ferry
