// SPDX-License-Identifier: Apache-2.0
// Keeps only the fields of a JSON text that a caller reads, while the text arrives. Any tenant can make a pod
// of 1.3 MB, whose tree takes fifteen times that; here only the kept fields take memory.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ferry {

/// A field of an object. The fields of a list are those of its elements.
struct Field {
  std::string_view name;
  std::vector<Field> inner = {};  ///< empty: the field as a whole
  bool presence = false;          ///< the value is replaced by `true`: that the field is there is enough
};

/// The fields of an object that are kept.
struct FieldChoice {
  enum class Mode {
    only,     ///< the fields that are named. Texts beyond 256 bytes become null, and a list ends after 8
              ///< elements, since a tenant writes them; names and UIDs are shorter
    all_but,  ///< all except those that are named
  };
  Mode mode = Mode::only;
  std::vector<Field> fields;
};

/// The most that a caller keeps of one answer. The largest object that etcd takes is 1.5 MiB.
inline constexpr std::size_t kMostKept = 2UL << 20U;

/// All but `metadata.managedFields`, which would be half of an object.
FieldChoice whole_object();
/// The choice for a List object whose items have this choice.
FieldChoice in_a_list(const FieldChoice& object);
/// The choice for a line of a watch's stream whose object has this choice.
FieldChoice in_a_watch(const FieldChoice& object);

/// The kept part is JSON if the text is. Depth and brackets of the rest are checked, its words are not.
class FieldFilter {
 public:
  /// `most`: bytes that the kept part may have.
  FieldFilter(FieldChoice choice, std::size_t most);

  /// Takes the next piece, cut anywhere. False: the kept part is too large, now and from now on.
  bool take(std::string_view bytes);
  /// True where nothing has come since the last finish().
  bool is_fresh() const { return fresh_; }
  /// The kept part of one whole text; no JSON where the text was none. The next text begins.
  std::string finish();

 private:
  struct Pick {
    bool kept = false;
    const std::vector<Field>* fields = nullptr;  ///< null: all
    bool presence = false;
  };
  /// An object or a list that is open.
  struct Level {
    bool list = false;
    bool kept = false;
    const std::vector<Field>* fields = nullptr;
    bool at_key = false;       ///< an object's next text is a key
    bool filled = false;       ///< the value has come; a comma or the end is next
    bool has_kept = false;     ///< a value of it is in the kept part
    std::size_t elements = 0;  ///< values so far
    Pick pick = {};            ///< an object's: for the value after the key
  };
  enum class Sink { nowhere, key, kept };

  bool fits() const;
  void take_char(char c);
  std::size_t take_quoted(std::string_view bytes);
  void keep_quoted(std::string_view piece);
  void begin_text();
  void end_text();
  bool begin_value();
  void open(char bracket);
  void close(char bracket);
  Pick pick(const std::vector<Field>* fields, std::string_view name) const;
  bool is_bounded() const;

  const FieldChoice choice_;
  const std::size_t most_;
  std::string kept_;
  std::string key_;
  std::vector<Level> levels_;
  const std::vector<Field>* value_fields_ = nullptr;  ///< fields of the value that has just begun
  Sink sink_ = Sink::nowhere;
  std::size_t text_begin_ = 0;  ///< where the current text begins in kept_
  bool fresh_ = true;
  bool quoted_ = false;
  bool escaped_ = false;
  bool word_ = false;  ///< in a number, true, false or null
  bool word_kept_ = false;
  bool broken_ = false;
};

}  // namespace ferry
