// SPDX-License-Identifier: Apache-2.0
// Reads a JSON document of Ferry's own key by key, and names the place of its first fault.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/result.h"
#include "common/text/whole_json.h"

namespace ferry {

/// An object in a JSON document. Unknown keys are ignored. The document's first fault is kept; later faults
/// are not reported, and a value at fault is empty. So a caller reads the whole document and asks once.
///
/// A function "..._or_none" takes an absent key and null for an absent value; all others blame both.
class JsonObject {
 public:
  /// The whole document. All must outlive this object. `fault` gets "accelerators[0].mode: expected a text".
  JsonObject(const nlohmann::json& document, std::string& fault) : JsonObject(document, {}, fault) {}

  std::string text(const char* key) const;
  std::string text_or_none(const char* key) const;  ///< empty: none
  bool flag(const char* key) const;
  /// Absent: `otherwise`.
  bool flag_or(const char* key, bool otherwise) const;
  /// A whole number from 0 on that `Number` can hold.
  template <typename Number>
  Number number(const char* key) const;
  template <typename Number>
  std::optional<Number> number_or_none(const char* key) const;
  /// A number from 0 to kLastGeneration.
  std::optional<std::uint64_t> generation_or_none(const char* key) const;
  /// `read` makes a value of each object of a list.
  template <typename Read>
  auto list(const char* key, Read read) const -> std::vector<std::invoke_result_t<Read, const JsonObject&>>;
  template <typename Read>
  auto list_or_none(const char* key, Read read) const
      -> std::optional<std::vector<std::invoke_result_t<Read, const JsonObject&>>>;
  template <typename Read>
  auto object_or_none(const char* key, Read read) const
      -> std::optional<std::invoke_result_t<Read, const JsonObject&>>;
  /// A list of whole numbers from 0 on.
  std::vector<std::uint32_t> numbers(const char* key) const;
  std::map<std::string, std::uint32_t> numbers_or_none(const char* key) const;
  /// A list of texts.
  std::vector<std::string> texts_or_none(const char* key) const;

  /// The key is there, and its value is not null.
  bool has(const char* key) const { return find(key) != nullptr; }
  /// The key must be there, also if its value is null.
  void expect_key(const char* key) const;
  /// The fault of another version says which one was found.
  void expect_version(int version) const;
  void blame(const std::string& key, const std::string& what) const;

 private:
  JsonObject(const nlohmann::json& object, std::string place, std::string& fault);
  const nlohmann::json* find(const char* key) const;    ///< nullptr: absent or null
  const nlohmann::json& needed(const char* key) const;  ///< null after a fault
  std::string place_of(const std::string& key) const;

  const nlohmann::json& object_;
  std::string place_;
  std::string& fault_;
};

/// Parses a document that another process has written. Errc::malformed_host: the text is beyond the bounds,
/// or no JSON. `what` names it in the message.
Result<nlohmann::json> parse_document(std::string_view text, const std::string& what, const std::string& hint,
                                      const JsonBounds& bounds = {});

/// The value that `read` makes of such a document. Errc::malformed_host also for a fault that `read` blames.
template <typename Read>
auto read_document(std::string_view text, const std::string& what, const std::string& hint, Read read,
                   const JsonBounds& bounds = {}) -> Result<std::invoke_result_t<Read, const JsonObject&>> {
  const auto document = parse_document(text, what, hint, bounds);
  if (!document) return fail(document.error());
  std::string fault;
  auto out = read(JsonObject(*document, fault));
  if (fault.empty()) return out;
  return fail(Errc::malformed_host, what + ": " + fault, hint);
}

/// read_document() for a file. `file`: its path, relative to the host's root.
template <typename Read>
auto read_json(std::string_view text, std::string_view file, const std::string& hint, Read read,
               const JsonBounds& bounds = {}) -> Result<std::invoke_result_t<Read, const JsonObject&>> {
  return read_document(text, "/" + std::string(file), hint, read, bounds);
}

/// The value of the key; null if there is none, or `object` is no object. For documents of others.
const nlohmann::json& json_at(const nlohmann::json& object, std::string_view key);
/// Empty: there is no text under the key.
std::string text_at(const nlohmann::json& object, std::string_view key);

/// The text of a document for a file. Bytes that are not UTF-8 are replaced: names of processes and texts of
/// drivers have such.
std::string json_text(const nlohmann::ordered_json& document);

template <typename T>
nlohmann::ordered_json or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}
/// The text, or null if it is empty.
nlohmann::ordered_json or_null(const std::string& text);

template <typename Number>
Number JsonObject::number(const char* key) const {
  const nlohmann::json& value = needed(key);
  if (value.is_number_unsigned() &&
      value.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<Number>::max()))
    return value.get<Number>();
  blame(key, "expected a number from 0 on");
  return {};
}

template <typename Number>
std::optional<Number> JsonObject::number_or_none(const char* key) const {
  return find(key) == nullptr ? std::nullopt : std::optional(number<Number>(key));
}

template <typename Read>
auto JsonObject::list(const char* key, Read read) const
    -> std::vector<std::invoke_result_t<Read, const JsonObject&>> {
  std::vector<std::invoke_result_t<Read, const JsonObject&>> out;
  const nlohmann::json& values = needed(key);
  if (!values.is_array()) return blame(key, "expected a list"), out;
  for (std::size_t i = 0; i < values.size() && fault_.empty(); ++i)
    out.push_back(read(JsonObject(values[i], place_of(key) + "[" + std::to_string(i) + "]", fault_)));
  return out;
}

template <typename Read>
auto JsonObject::list_or_none(const char* key, Read read) const
    -> std::optional<std::vector<std::invoke_result_t<Read, const JsonObject&>>> {
  if (find(key) == nullptr) return std::nullopt;
  return list(key, read);
}

template <typename Read>
auto JsonObject::object_or_none(const char* key, Read read) const
    -> std::optional<std::invoke_result_t<Read, const JsonObject&>> {
  const nlohmann::json* const value = find(key);
  if (value == nullptr) return std::nullopt;
  return read(JsonObject(*value, place_of(key), fault_));
}

}  // namespace ferry
