// A worker that evaluates the functions it is sent, for tests of what only workers can do.
//
// Counterpart: tests/browser/test_storage.py. `shared` outlives a message, so that a file or a lock stays open.

const shared = {};

self.onmessage = async ({ data: { script, argument } }) => {
  try {
    const action = (0, eval)(`(${script})`);
    self.postMessage({ value: await action(argument, shared) });
  } catch (error) {
    self.postMessage({ error: { name: error.name, code: error.code, message: `${error.stack}` } });
  }
};
