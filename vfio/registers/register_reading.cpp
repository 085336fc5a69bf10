// SPDX-License-Identifier: Apache-2.0
#include "vfio/registers/register_reading.h"

#include <algorithm>
#include <chrono>
#include <fcntl.h>
#include <iterator>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "common/file_status.h"
#include "common/text/json.h"
#include "common/text/text.h"
#include "hostfs/check_reading.h"
#include "vfio/pci/pci_function.h"
#include "vfio/registers/reading_record.h"
#include "vfio/registers/register_access.h"
#include "vfio/registers/register_fields.h"

namespace ferry::vfio {

template <typename Io, SameAs<FunctionRegisters> Value>
void fields(Io& io, Value& function) {
  io("address", function.address);
  io("registers", function.registers);
}

template <typename Io, SameAs<RegisterReading> Value>
void fields(Io& io, Value& reading) {
  io("functions", reading.functions);
  io("faults", reading.faults);
}

namespace {

// The changes that this needs are undone by the caller, by the record.
Result<RegisterFacts> read_function_registers(const HostFs& host, ReadingRecord& record,
                                              const PciAddress& address) {
  const auto function = read_function(host, address);
  if (!function) return fail(function.error());
  const auto chip = is_switch(*function) ? std::nullopt : gpu_chip(function->device);
  const auto registers = open_registers(host, record, *function, MappedRegisters::Access::read);
  if (!registers && chip && registers.error().code == kFirewallUp)
    return RegisterFacts{.chip = std::string(chip->name), .problem = registers.error().message};
  if (!registers) return fail(registers.error());
  RegisterFacts facts = chip ? read_register_facts(**registers, *chip) : read_switch_facts(**registers);
  if (chip && !facts.problem.empty() && is_security_fault((*registers)->read32(0)))
    facts.problem += fault_detail(host, address, chip->family);
  return facts;
}

// The clock is the same in every process.
std::chrono::milliseconds milliseconds_now() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now().time_since_epoch());
}

Result<RegisterReading> ask_child(HostWriter& writer, std::span<const PciAddress> functions,
                                  std::chrono::milliseconds deadline) {
  LibraryCall call{.name = std::string(kRegisterLibrary),
                   .request = fmt::format("{}\n", (milliseconds_now() + deadline).count()),
                   .device = functions.size() == 1 ? functions.front().text() : std::string(),
                   .changes = false,
                   .what = functions.size() == 1
                               ? "read the registers of " + functions.front().text()
                               : fmt::format("read the registers of {} functions", functions.size())};
  for (const PciAddress& address : functions) call.request += address.text() + "\n";
  const auto answer = writer.call(call, deadline);
  if (!answer) return fail(answer.error());
  return read_document(*answer, call.what, "", read_fields<RegisterReading>);
}

bool child_died(const Error& error) {
  return error.code == Errc::failed;
}

}  // namespace

std::string answer_register_call(const HostFs& host, std::string_view request) {
  RegisterReading out;
  const std::chrono::milliseconds until(whole_number<std::int64_t>(cut(request, '\n')).value_or(0));
  auto record = ReadingRecord::take(host);
  if (record) out.faults = record->restore(host);
  // After the deadline the asker has gone, and may change functions itself.
  while (!request.empty() && milliseconds_now() < until) {
    const auto address = PciAddress::parse(cut(request, '\n'));
    if (!address) continue;
    FunctionRegisters function{.address = *address, .registers = {}};
    if (!record) {
      function.registers.problem = record.error().message;
    } else {
      auto facts = read_function_registers(host, *record, *address);
      function.registers =
          facts ? std::move(*facts)
                : RegisterFacts{.problem = facts.error().message,
                                .in_use = facts.error().code == std::errc::device_or_resource_busy};
      for (std::string& fault : record->restore(host)) out.faults.push_back(std::move(fault));
    }
    out.functions.push_back(std::move(function));
  }
  return json_text(written_fields(out));
}

bool has_unfinished_reading(const HostFs& host) {
  const auto file = host.open(kReadingRecord, O_RDONLY);
  const auto status = file ? file_status(file->get()) : std::nullopt;
  return status && status->st_size > 0;
}

RegisterReading read_registers(HostWriter& writer, std::span<const PciAddress> functions,
                               std::chrono::milliseconds deadline) {
  auto reading = ask_child(writer, functions, deadline);
  if (reading) return std::move(*reading);
  RegisterReading out;
  if (child_died(reading.error()) && functions.size() > 1) {
    for (const PciAddress& address : functions) {
      RegisterReading one = read_registers(writer, std::span(&address, 1), deadline);
      std::ranges::move(one.functions, std::back_inserter(out.functions));
      std::ranges::move(one.faults, std::back_inserter(out.faults));
    }
    return out;
  }
  std::string problem = reading.error().message;
  if (child_died(reading.error())) {
    problem += ", as when a VM opens the function meanwhile";
    if (auto restored = ask_child(writer, {}, deadline)) {
      out.faults = std::move(restored->faults);
    } else {
      out.faults.push_back(restored.error().message);
    }
  }
  for (const PciAddress& address : functions)
    out.functions.push_back({.address = address, .registers = {.problem = problem}});
  return out;
}

}  // namespace ferry::vfio
