// What sha256.js uses of hash-wasm. The script itself is put beside this file by build_tools/vendor.py; as a
// module it exports nothing and leaves this global.

declare global {
  var hashwasm: {
    createSHA256(): Promise<{
      init(): void;
      update(data: Uint8Array): void;
      digest(form: "hex"): string;
    }>;
  };
}

export {};
