/* Trains in C with the files of closedform.training.export and the C API of onnxruntime alone.

       training_host FOLDER STEPS ROWS STATE NAME=FILE …

   runs init.onnx of FOLDER once and train.onnx STEPS times, prints the loss of each step, and writes
   the final values to the safetensors file STATE, which TrainSession.load reads. Each NAME is an
   input of the batch (input, target), each FILE its raw little-endian values, rows first; a step
   takes the next ROWS rows, and starts over where fewer are left.

       cc -O2 -I HEADERS examples/training_host.c LIBRARY/libonnxruntime.so -lm -o training_host

   The contract of the files: docs/migrate_onnxruntime_training.md. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnxruntime_c_api.h"

enum { MOST_AXES = 8, WORDS = 5 };

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

/* The rows of a step; the last rows of the data are left out if they do not fill one. */
static OrtValue *batch_value(const Layout *layout, const char *name, const Data *data, int count, int64_t step) {
  for (int i = 0; i < count; i++) {
    if (strcmp(data[i].name, name + strlen("batch.")) != 0) continue;
    void *memory;
    size_t bytes = layout->count * layout->type->size;
    if (bytes > data[i].size) fail("fewer values than one step takes", name);
    OrtValue *value = new_value(layout, &memory);
    memcpy(memory, data[i].bytes + (size_t)step % (data[i].size / bytes) * bytes, bytes);
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
  if (count <= WORDS) fail("usage", "training_host FOLDER STEPS ROWS STATE NAME=FILE …");
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
        inputs[i] = batch_value(&layout, name, data, given, step);
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

  save(words[4], init.output_names, values, init.outputs);
  for (size_t i = 0; i < init.outputs; i++) api->ReleaseValue(values[i]);
  api->ReleaseSession(train.session);
  api->ReleaseSession(init.session);
  api->ReleaseSessionOptions(options);
  api->ReleaseEnv(env);
  return 0;
}
