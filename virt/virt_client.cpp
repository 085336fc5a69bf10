// SPDX-License-Identifier: Apache-2.0
#include "virt/virt_client.h"

#include <cstddef>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/errc_words.h"
#include "common/process/spawn.h"
#include "common/text/json.h"
#include "common/text/words.h"

namespace ferry::virt {
namespace {

using Json = nlohmann::ordered_json;

// Thrown by the readers below for a value of another form; read_domains_answer() catches it.
struct Unreadable {
  std::string why;
};

Domain domain_of(const Json& value) {
  Domain domain{.name = value.at("name"), .uuid = value.at("uuid"), .pid = {}, .pci = {}, .mdev = {}};
  if (value.contains("pid")) {
    // The library says no for a fraction and for a number beyond 64 bits: as an int both would be undefined.
    if (!value["pid"].is_number_integer()) throw Unreadable{value["pid"].dump() + " is no process ID"};
    domain.pid = value["pid"].get<int>();
  }
  for (const Json& text : value.at("pci")) {
    auto address = vfio::PciAddress::parse(text.get_ref<const std::string&>());
    if (!address) throw Unreadable{address.error().message};
    domain.pci.push_back(*address);
  }
  domain.mdev = value.at("mdev").get<std::vector<std::string>>();
  return domain;
}

// Invalid UTF-8 is replaced: libvirt's texts and domain names may hold any bytes.
std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

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

std::string answer_text(const Error& error) {
  std::string_view code = "failed";
  for (const auto& [name, errc] : kErrcWords)
    if (error.code == errc) code = name;
  return dump({{"error", {{"code", code}, {"message", error.message}, {"hint", error.hint}}}});
}

Result<std::vector<Domain>> read_domains_answer(std::string_view text) {
  const auto document = parse_document(text, "ferry-virt's answer", {});
  if (!document) return fail(document.error());
  try {
    const Json answer = *document;
    if (answer.contains("error")) {
      const Json& error = answer["error"];
      const auto& code = error.at("code").get_ref<const std::string&>();
      return fail(Error{.code = value_for(kErrcWords, code).value_or(Errc::failed),
                        .message = error.at("message"),
                        .hint = error.value("hint", "")});
    }
    std::vector<Domain> domains;
    for (const Json& domain : answer.at("domains")) domains.push_back(domain_of(domain));
    return domains;
  } catch (const nlohmann::json::exception& unreadable) {
    return fail(Errc::malformed_host,
                fmt::format("ferry-virt's answer cannot be read: {}", unreadable.what()));
  } catch (const Unreadable& unreadable) {
    return fail(Errc::malformed_host, "ferry-virt's answer cannot be read: " + unreadable.why);
  }
}

Result<std::vector<Domain>> running_domains(const VirtHelper& helper, std::chrono::milliseconds deadline) {
  std::vector<std::string> words = {helper.program.string(), "domains", "--host-root",
                                    helper.host_root.string()};
  if (!helper.uri.empty()) words.insert(words.end(), {"--connect", helper.uri});
  const std::string name = helper.program.filename().string();

  std::string messages;
  // Ctrl-C does not reach the program: the caller may need the answer to finish its work (FinishOnSignal).
  auto output = run_for_output(helper.program, words, {.own_session = true},
                               {.bytes = std::numeric_limits<std::size_t>::max(), .time = deadline},
                               [&](std::string_view said) { messages += said; });
  if (!output && output.error().code == Errc::unreachable)
    return fail(Errc::unreachable, fmt::format("{}: no answer in {} ms", name, deadline.count()));
  if (!output && is_gone(output.error()))
    return fail(Errc::unreachable, std::move(output.error().message),
                "install ferry-virt in the folder of ferry");
  if (!output) return fail(std::move(output).error());
  if (!output->text.empty()) return read_domains_answer(output->text);

  // Without any answer the program was called wrongly or died; its last message is the reason.
  std::string_view said = messages;
  while (said.ends_with('\n')) said.remove_suffix(1);
  said.remove_prefix(said.find_last_of('\n') + 1);  // npos + 1 is 0: the whole text
  return fail(Errc::unreachable,
              fmt::format("{} ended without an answer (status {}): {}", name, output->status, said));
}

}  // namespace ferry::virt
