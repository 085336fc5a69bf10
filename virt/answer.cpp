// SPDX-License-Identifier: Apache-2.0
#include "virt/answer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/errc_words.h"
#include "common/text/json.h"
#include "common/text/text.h"
#include "common/text/words.h"

namespace ferry::virt {
namespace {

using Json = nlohmann::ordered_json;

constexpr Words<GuestAccelerator, 3> kAccelerators = {
    {{"auto", GuestAccelerator::automatic}, {"kvm", GuestAccelerator::kvm}, {"tcg", GuestAccelerator::tcg}}};

std::string hex(unsigned value, int digits) {
  return fmt::format("{:0{}x}", value, digits);
}

// Thrown by the readers below for a value of another form. read() catches it, and the library's exceptions.
struct Unreadable {
  std::string why;
};

template <typename T>
T unhex(const Json& value) {
  const auto& digits = value.get_ref<const std::string&>();
  if (const auto number = whole_number<T>(digits, 16)) return *number;
  throw Unreadable{"'" + digits + "' is no hexadecimal number"};
}

vfio::PciAddress address_of(const Json& value) {
  auto address = vfio::PciAddress::parse(value.get_ref<const std::string&>());
  if (!address) throw Unreadable{address.error().message};
  return *address;
}

Error error_of(const Json& value) {
  const auto& code = value.at("code").get_ref<const std::string&>();
  return {.code = value_for(kErrcWords, code).value_or(Errc::failed),
          .message = value.at("message"),
          .hint = value.value("hint", "")};
}

Json ids_json(const PciIds& ids) {
  return {{"vendor", hex(ids.vendor, 4)},
          {"device", hex(ids.device, 4)},
          {"subsystem_vendor", hex(ids.subsystem_vendor, 4)},
          {"subsystem_device", hex(ids.subsystem_device, 4)}};
}

PciIds ids_of(const Json& value) {
  return {.vendor = unhex<std::uint16_t>(value.at("vendor")),
          .device = unhex<std::uint16_t>(value.at("device")),
          .subsystem_vendor = unhex<std::uint16_t>(value.at("subsystem_vendor")),
          .subsystem_device = unhex<std::uint16_t>(value.at("subsystem_device"))};
}

Domain domain_of(const Json& value) {
  Domain domain{.name = value.at("name"), .uuid = value.at("uuid"), .pid = {}, .pci = {}, .mdev = {}};
  if (value.contains("pid")) {
    // The library says no for a fraction and for a number beyond 64 bits: as an int both would be undefined.
    if (!value["pid"].is_number_integer()) throw Unreadable{value["pid"].dump() + " is no process ID"};
    domain.pid = value["pid"].get<int>();
  }
  for (const Json& address : value.at("pci")) domain.pci.push_back(address_of(address));
  domain.mdev = value.at("mdev").get<std::vector<std::string>>();
  return domain;
}

SelftestReport report_of(const Json& value) {
  SelftestReport report;
  report.domain = value.at("domain");
  report.seconds = value.at("seconds");
  const auto& accelerator = value.at("accelerator").get_ref<const std::string&>();
  report.accelerator = value_for(kAccelerators, accelerator).value_or(GuestAccelerator::tcg);
  for (const Json& device : value.at("guest")) {
    report.guest.push_back({.address = address_of(device.at("address")),
                            .ids = ids_of(device),
                            .class_code = unhex<std::uint32_t>(device.at("class"))});
  }
  for (const Json& device : value.at("devices")) {
    SelftestDevice& added = report.devices.emplace_back();
    added.device = device.at("device");
    added.host_ids = ids_of(device.at("host"));
    if (!device.at("seen_as").is_null()) added.seen_as = address_of(device["seen_as"]);
  }
  return report;
}

template <typename Reader>
auto read(std::string_view text, Reader reader) -> Result<decltype(reader(Json()))> {
  const auto document = parse_document(text, "ferry-virt's answer", {});
  if (!document) return fail(document.error());
  try {
    const Json answer = *document;
    if (answer.contains("error")) return fail(error_of(answer["error"]));
    return reader(answer);
  } catch (const nlohmann::json::exception& unreadable) {
    return fail(Errc::malformed_host,
                fmt::format("ferry-virt's answer cannot be read: {}", unreadable.what()));
  } catch (const Unreadable& unreadable) {
    return fail(Errc::malformed_host, "ferry-virt's answer cannot be read: " + unreadable.why);
  }
}

// Invalid UTF-8 is replaced: libvirt's texts and domain names may hold any bytes.
std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string_view text(GuestAccelerator accelerator) {
  return word_for(kAccelerators, accelerator);
}

std::string answer_text(const std::vector<Domain>& domains) {
  Json list = Json::array();
  for (const Domain& domain : domains) {
    Json entry = {{"name", domain.name}, {"uuid", domain.uuid}};
    if (domain.pid) entry["pid"] = *domain.pid;
    entry["pci"] = Json::array();
    for (const vfio::PciAddress& address : domain.pci) entry["pci"].push_back(address.text());
    entry["mdev"] = domain.mdev;
    list.push_back(std::move(entry));
  }
  return dump({{"domains", std::move(list)}});
}

std::string answer_text(const SelftestReport& report) {
  Json guest = Json::array();
  for (const GuestDevice& device : report.guest) {
    Json entry = {{"address", device.address.text()}, {"class", hex(device.class_code, 6)}};
    entry.update(ids_json(device.ids));
    guest.push_back(std::move(entry));
  }
  Json devices = Json::array();
  for (const SelftestDevice& device : report.devices) {
    devices.push_back({{"device", device.device},
                       {"host", ids_json(device.host_ids)},
                       {"seen_as", device.seen_as ? Json(device.seen_as->text()) : Json()}});
  }
  return dump({{"domain", report.domain},
               {"accelerator", text(report.accelerator)},
               {"seconds", report.seconds},
               {"passed", report.passed()},
               {"guest", std::move(guest)},
               {"devices", std::move(devices)}});
}

std::string answer_text(const Error& error) {
  std::string_view code = "failed";
  for (const auto& [name, errc] : kErrcWords)
    if (error.code == errc) code = name;
  return dump({{"error", {{"code", code}, {"message", error.message}, {"hint", error.hint}}}});
}

Result<std::vector<Domain>> read_domains_answer(std::string_view text) {
  return read(text, [](const Json& answer) {
    std::vector<Domain> domains;
    for (const Json& domain : answer.at("domains")) domains.push_back(domain_of(domain));
    return domains;
  });
}

Result<SelftestReport> read_selftest_answer(std::string_view text) {
  return read(text, report_of);
}

bool SelftestReport::passed() const {
  return !devices.empty() && std::ranges::all_of(devices, [](const SelftestDevice& device) {
    return device.seen_as.has_value();
  });
}

}  // namespace ferry::virt
