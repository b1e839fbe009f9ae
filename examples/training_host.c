/* Trains in C with the files of closedform.training.export and the C API of onnxruntime alone.

       training_host [--no-check] FOLDER STEPS ROWS STATE NAME=FILE …

   runs init.onnx of FOLDER once and train.onnx STEPS times, prints the loss of each step, and writes
   the final values to the safetensors file STATE, which TrainSession.load reads. Each NAME is an
   input of the batch (input, target), each FILE its raw little-endian values, rows first; a step
   takes the next ROWS rows, and starts over where fewer are left. Labels and indices out of the range
   that train.onnx states end the program; --no-check leaves this out.

       cc -O2 -I HEADERS examples/training_host.c LIBRARY/libonnxruntime.so -lm -o training_host

   The contract of the files: docs/migrate_onnxruntime_training.md. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnxruntime_c_api.h"

enum { MOST_AXES = 8, MOST_PARTS = 16, MOST_LETTERS = 256, WORDS = 5 };

/* The functions below are those of onnxruntime 1.17; later libraries have them, too. */
enum { API_VERSION = 17 };

static const OrtApi *api;
static OrtAllocator *allocator;

static void fail(const char *what, const char *which) {
  fprintf(stderr, "training_host: %s: %s\n", what, which);
  exit(1);
}

static void check(OrtStatus *status) {
  if (status != NULL) fail("onnxruntime", api->GetErrorMessage(status));
}

static void *allocated(size_t size) {
  void *memory = malloc(size > 0 ? size : 1);
  if (memory == NULL) fail("out of memory", "malloc");
  return memory;
}

/* ---- Tensors ---------------------------------------------------------------------------------- */

typedef struct {
  ONNXTensorElementDataType type;
  const char *name; /* in safetensors */
  size_t size;
} Type;

static const Type TYPES[] = {
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, "F32", 4},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE, "F64", 8},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16, "F16", 2},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16, "BF16", 2},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, "I64", 8},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32, "I32", 4},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8, "U8", 1},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL, "BOOL", 1},
};

static const Type *type_of(ONNXTensorElementDataType type) {
  for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++)
    if (TYPES[i].type == type) return &TYPES[i];
  fail("unsupported element type", "see TYPES");
  return NULL;
}

typedef struct {
  const Type *type;
  size_t axes, count;
  int64_t shape[MOST_AXES];
} Layout;

static Layout layout_of(const OrtTensorTypeAndShapeInfo *info, int64_t rows) {
  Layout layout = {.count = 1};
  ONNXTensorElementDataType type;
  check(api->GetTensorElementType(info, &type));
  layout.type = type_of(type);
  check(api->GetDimensionsCount(info, &layout.axes));
  if (layout.axes > MOST_AXES) fail("too many axes", "raise MOST_AXES");
  check(api->GetDimensions(info, layout.shape, layout.axes));
  const char *symbols[MOST_AXES] = {NULL};
  check(api->GetSymbolicDimensions(info, symbols, layout.axes));
  for (size_t i = 0; i < layout.axes; i++) {
    if (layout.shape[i] < 0 && strcmp(symbols[i], "batch") == 0) layout.shape[i] = rows;
    if (layout.shape[i] < 0) fail("a free size that this example does not know", symbols[i]);
    layout.count *= (size_t)layout.shape[i];
  }
  return layout;
}

static Layout value_layout(const OrtValue *value) {
  OrtTensorTypeAndShapeInfo *info;
  check(api->GetTensorTypeAndShape(value, &info));
  Layout layout = layout_of(info, 0);
  api->ReleaseTensorTypeAndShapeInfo(info);
  return layout;
}

static OrtValue *new_value(const Layout *layout, void **data) {
  OrtValue *value;
  check(api->CreateTensorAsOrtValue(allocator, layout->shape, layout->axes, layout->type->type, &value));
  check(api->GetTensorMutableData(value, data));
  return value;
}

/* ---- Models ----------------------------------------------------------------------------------- */

typedef struct {
  OrtSession *session;
  size_t inputs, outputs;
  char **input_names, **output_names;
} Model;

static Model open_model(OrtEnv *env, const OrtSessionOptions *options, const char *folder, const char *file) {
  Model model;
  char path[4096];
  if (snprintf(path, sizeof path, "%s/%s", folder, file) >= (int)sizeof path) fail("long path", folder);
  check(api->CreateSession(env, path, options, &model.session));
  check(api->SessionGetInputCount(model.session, &model.inputs));
  check(api->SessionGetOutputCount(model.session, &model.outputs));
  model.input_names = allocated(model.inputs * sizeof(char *));
  model.output_names = allocated(model.outputs * sizeof(char *));
  for (size_t i = 0; i < model.inputs; i++)
    check(api->SessionGetInputName(model.session, i, allocator, &model.input_names[i]));
  for (size_t i = 0; i < model.outputs; i++)
    check(api->SessionGetOutputName(model.session, i, allocator, &model.output_names[i]));
  return model;
}

static Layout input_layout(const Model *model, size_t place, int64_t rows) {
  OrtTypeInfo *info;
  const OrtTensorTypeAndShapeInfo *tensor;
  check(api->SessionGetInputTypeInfo(model->session, place, &info));
  check(api->CastTypeInfoToTensorInfo(info, &tensor));
  Layout layout = layout_of(tensor, rows);
  api->ReleaseTypeInfo(info);
  return layout;
}

static void run(const Model *model, const OrtValue *const *inputs, OrtValue **outputs) {
  for (size_t i = 0; i < model->outputs; i++) outputs[i] = NULL;
  check(api->Run(model->session, NULL, (const char *const *)model->input_names, inputs, model->inputs,
                 (const char *const *)model->output_names, model->outputs, outputs));
}

static bool begins(const char *text, const char *prefix) {
  return strncmp(text, prefix, strlen(prefix)) == 0;
}

static size_t place_of(const char *name, char *const *names, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(names[i], name) == 0) return i;
  fail("no value of this name", name);
  return 0;
}

/* ---- Inputs of a step ------------------------------------------------------------------------- */

typedef struct {
  const char *name;
  unsigned char *bytes;
  size_t size;
} Data;

static Data read_data(const char *word) {
  const char *split = strchr(word, '=');
  if (split == NULL) fail("NAME=FILE expected", word);
  FILE *file = fopen(split + 1, "rb");
  if (file == NULL || fseek(file, 0, SEEK_END) != 0) fail("cannot read", split + 1);
  long size = ftell(file);
  if (size <= 0) fail("no data", split + 1);
  char *name = allocated((size_t)(split - word) + 1);
  memcpy(name, word, (size_t)(split - word));
  name[split - word] = '\0';
  Data data = {name, allocated((size_t)size), (size_t)size};
  rewind(file);
  if (fread(data.bytes, 1, data.size, file) != data.size) fail("cannot read", split + 1);
  fclose(file);
  return data;
}

/* ---- Ranges of labels and indices --------------------------------------------------------------

   The metadata closedform.indices of train.onnx is a list in JSON: an object for each part of an
   integer input that the model reads as labels or indices. ONNX counts a negative index from the end,
   and would train a wrong row. */

typedef struct {
  int64_t axis, start, stop, step;
  bool has_start, has_stop;
} Slice;

typedef struct {
  char kind[MOST_LETTERS];
  double number;
} Operation;

typedef struct {
  char input[MOST_LETTERS], size[MOST_LETTERS];
  int64_t low, free[MOST_PARTS];
  bool is_from_end;
  Slice slices[MOST_PARTS];
  Operation operations[MOST_PARTS];
  size_t free_values, slice_count, operation_count;
} Range;

typedef struct {
  Range *entries;
  size_t count;
} Ranges;

static const char *text; /* of the metadata that is left to read */

static bool takes(char letter) {
  text += strspn(text, " \n\t");
  if (*text != letter) return false;
  text++;
  return true;
}

static void expect(char letter) {
  if (!takes(letter)) fail("cannot read the ranges of indices at", text);
}

static bool takes_word(const char *word) {
  text += strspn(text, " \n\t");
  if (!begins(text, word)) return false;
  text += strlen(word);
  return true;
}

static int64_t read_number(void) {
  char *end;
  text += strspn(text, " \n\t");
  int64_t number = strtoll(text, &end, 10);
  if (end == text) fail("cannot read the ranges of indices at", text);
  text = end;
  return number;
}

static bool read_truth(void) {
  bool is_true = takes_word("true");
  if (!is_true && !takes_word("false")) fail("cannot read the ranges of indices at", text);
  return is_true;
}

static void read_string(char *copy) {
  expect('"');
  size_t length = strcspn(text, "\"\\");
  if (length >= MOST_LETTERS || text[length] != '"') fail("a name that this example does not read", text);
  memcpy(copy, text, length);
  copy[length] = '\0';
  text += length + 1;
}

/* Whether a list has a further entry; a list begins with count 0. */
static bool has_entry(size_t count) {
  if (count == 0) expect('[');
  if (takes(']')) return false;
  if (count > 0) expect(',');
  if (count == MOST_PARTS) fail("too many parts of a range", "raise MOST_PARTS");
  return true;
}

static Slice read_slice(void) {
  Slice slice = {.has_start = true, .has_stop = true};
  expect('[');
  slice.axis = read_number();
  expect(',');
  if (takes_word("null")) slice.has_start = false;
  else slice.start = read_number();
  expect(',');
  if (takes_word("null")) slice.has_stop = false;
  else slice.stop = read_number();
  expect(',');
  slice.step = read_number();
  expect(']');
  return slice;
}

static Range read_range(void) {
  Range range = {.low = 0};
  char key[MOST_LETTERS];
  expect('{');
  do {
    read_string(key);
    expect(':');
    if (strcmp(key, "input") == 0) read_string(range.input);
    else if (strcmp(key, "size") == 0) read_string(range.size);
    else if (strcmp(key, "low") == 0) range.low = read_number();
    else if (strcmp(key, "is_from_end") == 0) range.is_from_end = read_truth();
    else if (strcmp(key, "free") == 0)
      while (has_entry(range.free_values)) range.free[range.free_values++] = read_number();
    else if (strcmp(key, "cuts") == 0)
      while (has_entry(range.slice_count)) range.slices[range.slice_count++] = read_slice();
    else if (strcmp(key, "steps") == 0)
      while (has_entry(range.operation_count)) {
        Operation *operation = &range.operations[range.operation_count++];
        expect('[');
        read_string(operation->kind);
        expect(',');
        operation->number = (double)read_number();
        expect(']');
      }
    else fail("an entry of a range that this example does not know", key);
  } while (takes(','));
  expect('}');
  return range;
}

static Ranges read_ranges(const Model *model) {
  Ranges ranges = {NULL, 0};
  OrtModelMetadata *metadata;
  char *content;
  check(api->SessionGetModelMetadata(model->session, &metadata));
  check(api->ModelMetadataLookupCustomMetadataMap(metadata, allocator, "closedform.indices", &content));
  api->ReleaseModelMetadata(metadata);
  if (content == NULL) return ranges;
  text = content;
  expect('[');
  while (!takes(']')) {
    if (ranges.count > 0) expect(',');
    ranges.entries = realloc(ranges.entries, (ranges.count + 1) * sizeof(Range));
    if (ranges.entries == NULL) fail("out of memory", "realloc");
    ranges.entries[ranges.count++] = read_range();
  }
  check(api->AllocatorFree(allocator, content));
  return ranges;
}

static double size_of(const char *size, int64_t rows) {
  char *end;
  double number = (double)strtoll(size, &end, 10);
  if (end != size && *end == '\0') return number;
  if (strcmp(size, "batch") != 0) fail("a range of indices that this example does not compute: --no-check", size);
  return (double)rows;
}

/* The integers whose results of the operations are from low to high. */
static void invert(const Range *range, double *low, double *high) {
  for (size_t i = range->operation_count; i-- > 0;) {
    const char *kind = range->operations[i].kind;
    double number = range->operations[i].number, least = *low, most = *high;
    if (strcmp(kind, "add") == 0) {
      *low = least - number;
      *high = most - number;
    } else if (strcmp(kind, "multiply") == 0) {
      *low = ceil((number > 0 ? least : most) / number);
      *high = floor((number > 0 ? most : least) / number);
    } else if (strcmp(kind, "floor_divide") == 0) {
      *low = least * number;
      *high = most * number + number - 1;
    } else if (strcmp(kind, "clip_low") == 0) {
      *low = least <= number ? -INFINITY : least;
      *high = number <= most ? most : -INFINITY;
    } else if (strcmp(kind, "clip_high") == 0) {
      *high = number <= most ? INFINITY : most;
      *low = least <= number ? least : INFINITY;
    } else {
      fail("arithmetic of indices that this example does not know: --no-check", kind);
    }
  }
}

static int64_t bounded(int64_t place, int64_t count) {
  if (place < 0) place += count;
  return place < 0 ? 0 : place > count ? count : place;
}

/* Whether the slices of a range, one after the other, leave an element. */
static bool is_read(const Range *range, const Layout *layout, size_t element) {
  int64_t places[MOST_AXES], counts[MOST_AXES];
  for (size_t axis = layout->axes; axis-- > 0;) {
    counts[axis] = layout->shape[axis];
    places[axis] = (int64_t)element % counts[axis];
    element /= (size_t)counts[axis];
  }
  for (size_t i = 0; i < range->slice_count; i++) {
    Slice slice = range->slices[i];
    int64_t start = slice.has_start ? bounded(slice.start, counts[slice.axis]) : 0;
    int64_t stop = slice.has_stop ? bounded(slice.stop, counts[slice.axis]) : counts[slice.axis];
    int64_t place = places[slice.axis] - start;
    if (place < 0 || places[slice.axis] >= stop || place % slice.step != 0) return false;
    places[slice.axis] = place / slice.step;
    counts[slice.axis] = stop > start ? (stop - start + slice.step - 1) / slice.step : 0;
  }
  return true;
}

static int64_t integer_at(const Layout *layout, const void *memory, size_t element) {
  switch (layout->type->type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64: return ((const int64_t *)memory)[element];
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32: return ((const int32_t *)memory)[element];
    default: return ((const uint8_t *)memory)[element];
  }
}

static void refuse(const Range *range, int64_t value, int64_t row, double low, double high) {
  char bounds[64], message[2 * MOST_LETTERS + 256];
  if (isinf(low)) snprintf(bounds, sizeof bounds, "<= %.0f", high);
  else if (isinf(high)) snprintf(bounds, sizeof bounds, ">= %.0f", low);
  else snprintf(bounds, sizeof bounds, "in %.0f..%.0f", low, high);
  size_t used = (size_t)snprintf(message, sizeof message, "must have values %s", bounds);
  for (size_t i = 0; i < range->free_values; i++)
    used += (size_t)snprintf(message + used, sizeof message - used, " or %lld", (long long)range->free[i]);
  snprintf(message + used, sizeof message - used, ", got %lld in row %lld of the data", (long long)value,
           (long long)row);
  fail(range->input, message);
}

/* Ends the program at the first value of an input that is out of a range. */
static void check_indices(const Ranges *ranges, const char *name, const Layout *layout, const void *memory,
                          int64_t rows, int64_t first_row) {
  for (size_t i = 0; i < ranges->count; i++) {
    const Range *range = &ranges->entries[i];
    if (strcmp(range->input, name + strlen("batch.")) != 0) continue;
    double size = size_of(range->size, rows);
    double low = range->is_from_end ? -size : (double)range->low, high = size - 1;
    invert(range, &low, &high);
    for (size_t element = 0; element < layout->count; element++) {
      int64_t value = integer_at(layout, memory, element);
      bool is_right = (double)value >= low && (double)value <= high;
      for (size_t k = 0; k < range->free_values; k++) is_right = is_right || value == range->free[k];
      if (is_right || !is_read(range, layout, element)) continue;
      int64_t width = (int64_t)layout->count / (layout->axes > 0 ? layout->shape[0] : 1);
      refuse(range, value, first_row + (int64_t)element / width, low, high);
    }
  }
}

/* The rows of a step; the last rows of the data are left out if they do not fill one. */
static OrtValue *batch_value(const Layout *layout, const char *name, const Data *data, int count, int64_t step,
                             int64_t rows, const Ranges *ranges) {
  for (int i = 0; i < count; i++) {
    if (strcmp(data[i].name, name + strlen("batch.")) != 0) continue;
    void *memory;
    size_t bytes = layout->count * layout->type->size;
    if (bytes > data[i].size) fail("fewer values than one step takes", name);
    OrtValue *value = new_value(layout, &memory);
    size_t batch = (size_t)step % (data[i].size / bytes);
    memcpy(memory, data[i].bytes + batch * bytes, bytes);
    check_indices(ranges, name, layout, memory, rows, (int64_t)batch * rows);
    return value;
  }
  fail("no data: NAME=FILE is missing for", name);
  return NULL;
}

static uint64_t state = 1; /* of SplitMix64 */

static double uniform(void) {
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (double)((z ^ (z >> 31)) >> 40) / 16777216.0; /* 24 bits: exact in float32, below 1 */
}

static OrtValue *random_value(const Layout *layout, const char *name) {
  void *memory;
  OrtValue *value = new_value(layout, &memory);
  for (size_t i = 0; i < layout->count; i++) {
    double number = uniform();
    if (begins(name, "random.normal."))
      number = sqrt(-2 * log(1 - number)) * cos(6.283185307179586 * uniform());
    else if (begins(name, "random.exponential."))
      number = -log(1 - number);
    if (layout->type->size == 8)
      ((double *)memory)[i] = number;
    else
      ((float *)memory)[i] = (float)number;
  }
  return value;
}

static float loss_of(OrtValue *value) {
  void *memory;
  Layout layout = value_layout(value);
  check(api->GetTensorMutableData(value, &memory));
  if (layout.type->size == 8) return (float)*(double *)memory;
  if (layout.type->size != 4) fail("the loss is not float32 or float64", layout.type->name);
  return *(float *)memory;
}

/* ---- The state as a safetensors file: a header in JSON, then the bytes ------------------------- */

static void save(const char *path, char *const *names, OrtValue *const *values, size_t count) {
  size_t capacity = 64, used = 1, offset = 0;
  for (size_t i = 0; i < count; i++) capacity += strlen(names[i]) + 128 + 24 * MOST_AXES;
  char *header = allocated(capacity);
  header[0] = '{';
  for (size_t i = 0; i < count; i++) {
    Layout layout = value_layout(values[i]);
    used += (size_t)sprintf(header + used, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i ? "," : "", names[i],
                            layout.type->name);
    for (size_t axis = 0; axis < layout.axes; axis++)
      used += (size_t)sprintf(header + used, "%s%lld", axis ? "," : "", (long long)layout.shape[axis]);
    size_t end = offset + layout.count * layout.type->size;
    used += (size_t)sprintf(header + used, "],\"data_offsets\":[%zu,%zu]}", offset, end);
    offset = end;
  }
  header[used++] = '}';
  while (used % 8 != 0) header[used++] = ' ';
  FILE *file = fopen(path, "wb");
  if (file == NULL) fail("cannot write", path);
  uint64_t length = used;
  bool is_written = fwrite(&length, 8, 1, file) == 1 && fwrite(header, 1, used, file) == used;
  for (size_t i = 0; i < count && is_written; i++) {
    void *memory;
    Layout layout = value_layout(values[i]);
    size_t bytes = layout.count * layout.type->size;
    check(api->GetTensorMutableData(values[i], &memory));
    is_written = fwrite(memory, 1, bytes, file) == bytes;
  }
  if (fclose(file) != 0 || !is_written) fail("cannot write", path);
  free(header);
}

int main(int count, char **words) {
  bool is_checked = count < 2 || strcmp(words[1], "--no-check") != 0;
  if (!is_checked) count--, words++;
  if (count <= WORDS) fail("usage", "training_host [--no-check] FOLDER STEPS ROWS STATE NAME=FILE …");
  const char *folder = words[1];
  int64_t steps = atoll(words[2]), rows = atoll(words[3]);
  if (steps < 1 || rows < 1) fail("STEPS and ROWS must be positive", words[2]);
  int given = count - WORDS;
  Data *data = allocated((size_t)given * sizeof(Data));
  for (int i = 0; i < given; i++) data[i] = read_data(words[WORDS + i]);

  api = OrtGetApiBase()->GetApi(API_VERSION);
  if (api == NULL) fail("the library is too old", OrtGetApiBase()->GetVersionString());
  OrtEnv *env;
  OrtSessionOptions *options;
  check(api->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "training_host", &env));
  check(api->GetAllocatorWithDefaultOptions(&allocator));
  check(api->CreateSessionOptions(&options));
  check(api->SetIntraOpNumThreads(options, 1));
  Model init = open_model(env, options, folder, "init.onnx");
  Model train = open_model(env, options, folder, "train.onnx");
  Ranges ranges = {NULL, 0};
  if (is_checked) ranges = read_ranges(&train);

  /* 1. The outputs of init.onnx are the values that a step begins with. */
  OrtValue **values = allocated(init.outputs * sizeof(OrtValue *));
  run(&init, NULL, values);

  /* 2. Each run of train.onnx gets them, a batch and random numbers. */
  const OrtValue **inputs = allocated(train.inputs * sizeof(OrtValue *));
  OrtValue **outputs = allocated(train.outputs * sizeof(OrtValue *));
  for (int64_t step = 0; step < steps; step++) {
    for (size_t i = 0; i < train.inputs; i++) {
      const char *name = train.input_names[i];
      if (begins(name, "batch.")) {
        Layout layout = input_layout(&train, i, rows);
        inputs[i] = batch_value(&layout, name, data, given, step, rows, &ranges);
      } else if (begins(name, "random.")) {
        Layout layout = input_layout(&train, i, rows);
        inputs[i] = random_value(&layout, name);
      } else {
        inputs[i] = values[place_of(name, init.output_names, init.outputs)];
      }
    }
    run(&train, inputs, outputs);
    for (size_t i = 0; i < train.inputs; i++)
      if (begins(train.input_names[i], "batch.") || begins(train.input_names[i], "random."))
        api->ReleaseValue((OrtValue *)inputs[i]);

    /* 3. An output next.X is the value X of the next step; loss is a result. */
    for (size_t i = 0; i < train.outputs; i++) {
      const char *name = train.output_names[i];
      if (begins(name, "next.")) {
        size_t place = place_of(name + strlen("next."), init.output_names, init.outputs);
        api->ReleaseValue(values[place]);
        values[place] = outputs[i];
        continue;
      }
      if (strcmp(name, "loss") == 0) printf("%.9g\n", loss_of(outputs[i]));
      api->ReleaseValue(outputs[i]);
    }
  }

  free(ranges.entries);
  save(words[4], init.output_names, values, init.outputs);
  for (size_t i = 0; i < init.outputs; i++) api->ReleaseValue(values[i]);
  api->ReleaseSession(train.session);
  api->ReleaseSession(init.session);
  api->ReleaseSessionOptions(options);
  api->ReleaseEnv(env);
  return 0;
}
