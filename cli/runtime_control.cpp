// SPDX-License-Identifier: Apache-2.0
#include "cli/runtime_control.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "host/systemd_services.h"
#include "kata-manager/unit_file.h"

namespace ferry {
namespace {

// On a slow disk a runtime takes long to read its images' metadata before it reports its start.
constexpr std::chrono::minutes kPatience{3};

/// The unit as systemd has loaded it; absent: systemd cannot be asked, or has not loaded it.
std::optional<UnitFile> loaded(HostWriter& writer, const std::string& unit) {
  const auto text = writer.output({.root = {},
                                   .words = {"/usr/bin/systemctl", "show", "-p", "LoadState", "-p",
                                             "KillMode", "-p", "NeedDaemonReload", unit},
                                   .device = {}},
                                  std::chrono::seconds(10));
  if (!text) return std::nullopt;
  UnitFile said({"[Service]\n" + *text});
  if (said.value("Service", "LoadState") != "loaded") return std::nullopt;
  return said;
}

class UnitRestart final : public RuntimeControl {
 public:
  UnitRestart(const HostFs& host, HostWriter& writer, std::string unit)
      : host_(host), writer_(writer), unit_(std::move(unit)) {}
  std::string text() const override { return "restart " + unit_; }
  std::optional<std::string> harm() const override {
    auto said = loaded(writer_, unit_);
    if (said && said->value("Service", "NeedDaemonReload") == "yes")
      return unit_ + " was changed, and systemd has not read it since (systemctl daemon-reload)";
    if (!said) said = UnitFile::read(host_, unit_);
    if (!said) return unit_ + " has no unit file, and what its stop kills is not known";
    // ABI: systemd.kill(5). Any other mode kills all processes of the service, sooner or later.
    const std::string mode = said->value("Service", "KillMode").value_or("control-group");
    if (mode == "process" || mode == "none") return std::nullopt;
    return fmt::format("{} has KillMode={}, and the processes that keep pods running are its own", unit_,
                       mode);
  }
  Result<> act() override { return SystemdServices(host_, kPatience).restart(unit_); }

 private:
  const HostFs& host_;
  HostWriter& writer_;
  std::string unit_;
};

class UnitReload final : public RuntimeControl {
 public:
  UnitReload(const HostFs& host, std::string unit) : host_(host), unit_(std::move(unit)) {}
  std::string text() const override { return "reload " + unit_; }
  std::optional<std::string> harm() const override { return std::nullopt; }
  Result<> act() override { return SystemdServices(host_, kPatience).reload(unit_); }

 private:
  const HostFs& host_;
  std::string unit_;
};

class CommandRun final : public RuntimeControl {
 public:
  CommandRun(HostWriter& writer, std::vector<std::string> words)
      : writer_(writer),
        command_{.root = {}, .words = std::move(words), .device = {}, .killed_when_late = true} {}
  std::string text() const override { return "run " + command_.text(); }
  std::optional<std::string> harm() const override { return std::nullopt; }
  Result<> act() override { return writer_.run(command_, kPatience); }

 private:
  HostWriter& writer_;
  HostCommand command_;
};

class LeftToAnother final : public RuntimeControl {
 public:
  explicit LeftToAnother(std::string program) : program_(std::move(program)) {}
  std::string text() const override { return fmt::format("wait until {} has had it read", program_); }
  std::optional<std::string> harm() const override { return std::nullopt; }
  Result<> act() override { return {}; }

 private:
  std::string program_;
};

}  // namespace

std::unique_ptr<RuntimeControl> restart_of_unit(const HostFs& host, HostWriter& writer, std::string unit) {
  return std::make_unique<UnitRestart>(host, writer, std::move(unit));
}

std::unique_ptr<RuntimeControl> reload_of_unit(const HostFs& host, std::string unit) {
  return std::make_unique<UnitReload>(host, std::move(unit));
}

std::unique_ptr<RuntimeControl> run_of_command(HostWriter& writer, std::vector<std::string> words) {
  return std::make_unique<CommandRun>(writer, std::move(words));
}

std::unique_ptr<RuntimeControl> left_to(std::string program) {
  return std::make_unique<LeftToAnother>(std::move(program));
}

}  // namespace ferry
