// SPDX-License-Identifier: Apache-2.0
#include <libxml/parser.h>
#include <libxml/xpath.h>
#include <memory>
#include <span>

#include <fmt/format.h>

#include "common/text/text.h"
#include "virt/domain.h"

namespace ferry::virt {
namespace {

using Document = std::unique_ptr<xmlDoc, void (*)(xmlDoc*)>;
using Context = std::unique_ptr<xmlXPathContext, void (*)(xmlXPathContext*)>;
using Found = std::unique_ptr<xmlXPathObject, void (*)(xmlXPathObject*)>;
using Text = std::unique_ptr<xmlChar, void (*)(void*)>;

const xmlChar* bytes(const char* text) {
  return reinterpret_cast<const xmlChar*>(text);
}

std::string taken(xmlChar* text) {
  const Text owned(text, ::xmlFree);
  return owned ? reinterpret_cast<const char*>(owned.get()) : "";
}

Found find(const Context& context, const char* path) {
  return {::xmlXPathEvalExpression(bytes(path), context.get()), ::xmlXPathFreeObject};
}

std::span<xmlNode* const> nodes(const Found& found) {
  if (!found || found->nodesetval == nullptr) return {};
  return {found->nodesetval->nodeTab, static_cast<std::size_t>(found->nodesetval->nodeNr)};
}

std::string text_of(const Context& context, const char* path) {
  const Found found = find(context, path);
  const auto elements = nodes(found);
  return elements.empty() ? "" : taken(::xmlNodeGetContent(elements.front()));
}

Result<unsigned> number(xmlNode* element, const char* attribute, unsigned most) {
  const std::string value = taken(::xmlGetProp(element, bytes(attribute)));
  const bool hex = value.starts_with("0x");
  const std::string_view digits = std::string_view(value).substr(hex ? 2 : 0);
  const auto out = whole_number<unsigned>(digits, hex ? 16 : 10);
  if (!out || *out > most) {
    return fail(Errc::malformed_host, fmt::format("line {}: {}='{}' is no number up to 0x{:x}",
                                                  ::xmlGetLineNo(element), attribute, value, most));
  }
  return *out;
}

Result<vfio::PciAddress> address_of(xmlNode* element) {
  vfio::PciAddress address;
  // libvirt leaves the domain out of XML that it was given without one.
  if (::xmlHasProp(element, bytes("domain")) != nullptr) {
    const auto domain = number(element, "domain", 0xffffffff);
    if (!domain) return fail(domain.error());
    address.domain = *domain;
  }
  const auto bus = number(element, "bus", 0xff);
  if (!bus) return fail(bus.error());
  const auto slot = number(element, "slot", 0x1f);
  if (!slot) return fail(slot.error());
  const auto function = number(element, "function", 7);
  if (!function) return fail(function.error());
  address.bus = static_cast<std::uint8_t>(*bus);
  address.device = static_cast<std::uint8_t>(*slot);
  address.function = static_cast<std::uint8_t>(*function);
  return address;
}

}  // namespace

Result<Domain> read_domain_xml(std::string_view xml) {
  // Network and entities are not used, and messages go into the error instead of to stderr.
  constexpr int kOptions = XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING;
  ::xmlResetLastError();  // an empty text sets no error, and an earlier one would be reported
  const Document document(
      ::xmlReadMemory(xml.data(), static_cast<int>(xml.size()), "domain.xml", nullptr, kOptions),
      ::xmlFreeDoc);
  if (!document) {
    const xmlError* why = ::xmlGetLastError();
    std::string message = why != nullptr && why->message != nullptr ? why->message : "no XML, but nothing";
    while (message.ends_with('\n')) message.pop_back();
    return fail(Errc::malformed_host,
                fmt::format("domain XML: line {}: {}", why != nullptr ? why->line : 0, message));
  }

  const Context context(::xmlXPathNewContext(document.get()), ::xmlXPathFreeContext);
  Domain domain;
  domain.name = text_of(context, "/domain/name");
  domain.uuid = text_of(context, "/domain/uuid");
  if (domain.name.empty()) return fail(Errc::malformed_host, "domain XML: no <domain> with a <name>");

  // Among source addresses only PCI ones have a slot (a USB device's has bus and device).
  const Found pci = find(context, "/domain/devices/*/source/address[@slot]");
  for (xmlNode* element : nodes(pci)) {
    auto address = address_of(element);
    if (!address) return fail(std::move(address).error().during("domain XML"));
    domain.pci.push_back(*address);
  }
  const Found mdev = find(context, "/domain/devices/hostdev[@type='mdev']/source/address/@uuid");
  for (xmlNode* attribute : nodes(mdev)) domain.mdev.push_back(lower(taken(::xmlNodeGetContent(attribute))));
  return domain;
}

}  // namespace ferry::virt
