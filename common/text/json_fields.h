// SPDX-License-Identifier: Apache-2.0
// One list of a struct's members, by which its JSON object is both read and written. It stands in the
// namespace of the struct:
//
//   template <typename Io, SameAs<StatusError> Value>
//   void fields(Io& io, Value& error) {
//     io("message", error.message);
//     io.or_default("hint", error.hint);
//   }
//
// A member is a text, a flag, a whole number from 0 on, an enumeration with words_of(), a class with text()
// and parse(), a struct with fields(), a list or an optional of these, or a map of numbers. A struct that
// calls fields() of a member has the member's keys among its own.
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/text/json.h"
#include "common/text/words.h"

namespace ferry {

/// `Value` or `const Value`: a reader fills in the one, and a writer takes the other.
template <typename T, typename Value>
concept SameAs = std::same_as<std::remove_const_t<T>, Value>;

namespace json_fields {

template <typename T>
inline constexpr bool is_optional = false;
template <typename T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <typename T>
inline constexpr bool is_list = false;
template <typename T>
inline constexpr bool is_list<std::vector<T>> = true;
/// "0000:3b:00.0" of a PCI address.
template <typename T>
concept HasText = requires(const T& value) {
  { value.text() } -> std::convertible_to<std::string>;
  T::parse(std::string_view());
};

}  // namespace json_fields

/// The value of an object, for read_document() and read_json().
template <typename T>
T read_fields(const JsonObject& object);

/// Reads the members. Faults go to the object's document, and a member at fault is empty.
class FieldReader {
 public:
  static constexpr bool kReads = true;
  explicit FieldReader(const JsonObject& object) : object_(object) {}

  /// The key must be there. Null is the value of an optional alone.
  template <typename T>
  void operator()(const char* key, T& value) {
    object_.expect_key(key);
    if constexpr (json_fields::is_optional<T>) {
      if (object_.has(key)) value = read<typename T::value_type>(key);
    } else {
      value = read<T>(key);
    }
  }
  /// Null stands for an empty value, and the key may be absent.
  template <typename T>
  void or_null(const char* key, T& value) {
    if (object_.has(key)) (*this)(key, value);
  }
  /// The key may be absent, in a file of an older version; the member then keeps its default.
  template <typename T>
  void or_default(const char* key, T& value) {
    or_null(key, value);
  }
  void version(int expected) { object_.expect_version(expected); }
  /// Blames the key unless `holds`.
  void check(const char* key, bool holds, const std::string& fault) {
    if (!holds) object_.blame(key, fault);
  }

 private:
  template <typename T>
  T read(const char* key) const {
    if constexpr (std::same_as<T, std::string>) {
      return object_.text(key);
    } else if constexpr (std::same_as<T, bool>) {
      return object_.flag(key);
    } else if constexpr (std::integral<T>) {
      return object_.number<T>(key);
    } else if constexpr (std::is_enum_v<T>) {
      const std::string word = object_.text(key);
      const auto value = value_for(words_of(T()), word);
      if (!value) object_.blame(key, "'" + word + "' is none of its words");
      return value.value_or(T());
    } else if constexpr (json_fields::HasText<T>) {
      auto value = T::parse(object_.text(key));
      if (!value) object_.blame(key, value.error().message);
      return value.value_or(T());
    } else if constexpr (std::same_as<T, std::vector<std::string>>) {
      return object_.texts_or_none(key);
    } else if constexpr (std::same_as<T, std::vector<std::uint32_t>>) {
      return object_.numbers(key);
    } else if constexpr (std::same_as<T, std::map<std::string, std::uint32_t>>) {
      return object_.numbers_or_none(key);
    } else if constexpr (json_fields::is_list<T>) {
      return object_.list(key, read_fields<typename T::value_type>);
    } else {
      auto value = object_.object_or_none(key, read_fields<T>);
      if (!value) object_.blame(key, "expected an object");
      return value ? std::move(*value) : T();
    }
  }

  const JsonObject& object_;
};

/// Writes the members in the order of the list.
class FieldWriter {
 public:
  static constexpr bool kReads = false;

  template <typename T>
  void operator()(const char* key, const T& value) {
    out_[key] = json_of(value);
  }
  template <typename T>
  void or_null(const char* key, const T& value) {
    if constexpr (requires { value.empty(); }) {
      if (value.empty()) {
        out_[key] = nullptr;
        return;
      }
    }
    out_[key] = json_of(value);
  }
  template <typename T>
  void or_default(const char* key, const T& value) {
    (*this)(key, value);
  }
  void version(int version) { out_["version"] = version; }
  void check(const char* /*key*/, bool /*holds*/, std::string_view /*fault*/) {}

  nlohmann::ordered_json take() { return std::move(out_); }

 private:
  template <typename T>
  static nlohmann::ordered_json json_of(const T& value) {
    if constexpr (json_fields::is_optional<T>) {
      return value ? json_of(*value) : nlohmann::ordered_json();
    } else if constexpr (std::is_enum_v<T>) {
      return word_for(words_of(value), value);
    } else if constexpr (json_fields::HasText<T>) {
      return value.text();
    } else if constexpr (json_fields::is_list<T>) {
      auto out = nlohmann::ordered_json::array();
      for (const auto& one : value) out.push_back(json_of(one));
      return out;
    } else if constexpr (std::constructible_from<nlohmann::ordered_json, const T&>) {
      return value;
    } else {
      FieldWriter io;
      fields(io, value);
      return io.take();
    }
  }

  nlohmann::ordered_json out_ = nlohmann::ordered_json::object();
};

template <typename T>
T read_fields(const JsonObject& object) {
  T out{};
  FieldReader io(object);
  fields(io, out);
  return out;
}

template <typename T>
nlohmann::ordered_json written_fields(const T& value) {
  FieldWriter io;
  fields(io, value);
  return io.take();
}

/// A map as a list of `Entry`, a struct with `name`, `value` and fields().
template <typename Entry, typename Io, typename Map>
void named_entries(Io& io, const char* key, Map& map) {
  std::vector<Entry> list;
  if constexpr (!Io::kReads)
    for (const auto& [name, value] : map) list.push_back({name, value});
  io(key, list);
  if constexpr (Io::kReads)
    for (Entry& entry : list) map.insert_or_assign(std::move(entry.name), std::move(entry.value));
}

}  // namespace ferry
