// SPDX-License-Identifier: Apache-2.0
#include "virt/virt_client.h"

#include <fmt/format.h>

#include "virt/answer.h"
#include "virt/helper_process.h"

namespace ferry::virt {
namespace {

std::string last_line(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  return std::string(text.substr(text.find_last_of('\n') + 1));  // npos + 1 is 0: the whole text
}

Result<std::string> ask(const VirtHelper& helper, std::vector<std::string> arguments,
                        std::chrono::milliseconds deadline, OnCtrlC on_ctrl_c) {
  arguments.insert(arguments.end(), {"--host-root", helper.host_root.string()});
  if (!helper.uri.empty()) arguments.insert(arguments.end(), {"--connect", helper.uri});
  auto output = run_helper(helper.program, arguments, deadline, on_ctrl_c);
  if (!output && is_gone(output.error())) {
    return fail(Errc::unreachable, std::move(output.error().message), "install ferry-virt beside ferry");
  }
  if (!output) return fail(std::move(output).error());
  // Without any answer the program was called wrongly or died; its last message is the reason.
  if (output->out.empty()) {
    return fail(Errc::unreachable,
                fmt::format("{} ended without an answer (status {}): {}", helper.program.filename().string(),
                            output->exit_status, last_line(output->err)));
  }
  return std::move(output->out);
}

}  // namespace

std::filesystem::path virt_program() {
  std::error_code failure;
  const auto own = std::filesystem::read_symlink("/proc/self/exe", failure);
  const auto beside = own.parent_path() / "ferry-virt";
  return !failure && std::filesystem::exists(beside, failure) ? beside : "ferry-virt";
}

Result<std::vector<Domain>> running_domains(const VirtHelper& helper, std::chrono::milliseconds deadline) {
  auto answer = ask(helper, {"domains"}, deadline, OnCtrlC::goes_on);
  if (!answer) return fail(std::move(answer).error());
  return read_domains_answer(*answer);
}

Result<SelftestReport> run_selftest(const VirtHelper& helper, const SelftestOptions& options) {
  // ferry-virt keeps the timeout itself and cleans up after it; the grace is for a libvirt that hangs.
  constexpr std::chrono::seconds kGrace{30};
  std::vector<std::string> arguments = {"selftest"};
  for (const std::string& device : options.devices) arguments.insert(arguments.end(), {"--device", device});
  arguments.insert(arguments.end(),
                   {"--kernel", options.kernel, "--initrd", options.initrd, "--memory",
                    std::to_string(options.memory_mib), "--timeout", std::to_string(options.timeout.count()),
                    "--accel", std::string(text(options.accelerator))});
  auto answer = ask(helper, std::move(arguments), options.timeout + kGrace, OnCtrlC::ends);
  if (!answer) return fail(std::move(answer).error());
  return read_selftest_answer(*answer);
}

}  // namespace ferry::virt
