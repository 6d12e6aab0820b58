// An Emscripten file system over files of the host: read-only, and nothing is copied before it is read.
//
// Counterparts: web/worker/mounted_file.js, to which every read is handed with the piece of the heap that it
// fills; web/worker/engine_port.js, which mounts. Linked by --js-library, which is preprocessed: tsc cannot check
// it, so that it holds only what Emscripten asks of a file system.

addToLibrary({
  $STORAGEFS__deps: ["$FS"],
  $STORAGEFS: {
    // opts.files: [{name, file}], names without a slash.
    mount(mount) {
      const root = STORAGEFS.createNode(null, "/", {{{ cDefs.S_IFDIR }}} | 0o555, 4096);
      root.names = mount.opts.files.map(({ name }) => name);
      for (const { name, file } of mount.opts.files) {
        const node = STORAGEFS.createNode(root, name, {{{ cDefs.S_IFREG }}} | 0o444, file.size);
        node.file = file;
      }
      return root;
    },

    createNode(parent, name, mode, size) {
      const node = FS.createNode(parent, name, mode, 0);
      node.size = size;
      node.node_ops = STORAGEFS.node_ops;
      node.stream_ops = STORAGEFS.stream_ops;
      return node;
    },

    node_ops: {
      getattr(node) {
        const never = new Date(0);
        return {
          dev: 1,
          ino: node.id,
          mode: node.mode,
          nlink: 1,
          uid: 0,
          gid: 0,
          rdev: 0,
          size: node.size,
          atime: never,
          mtime: never,
          ctime: never,
          blksize: 65536,
          blocks: Math.ceil(node.size / 512),
        };
      },
      // All nodes are made at once: what FS does not find in its table is not there.
      lookup() {
        throw new FS.ErrnoError({{{ cDefs.ENOENT }}});
      },
      readdir: (node) => [".", "..", ...node.names],
    },

    stream_ops: {
      read(stream, heap, offset, length, position) {
        const target = new Uint8Array(heap.buffer, heap.byteOffset + offset, length);
        try {
          return stream.node.file.read(target, position);
        } catch {
          throw new FS.ErrnoError({{{ cDefs.EIO }}}); // the file keeps the cause
        }
      },
      llseek(stream, offset, whence) {
        let position = offset;
        if (whence === {{{ cDefs.SEEK_CUR }}}) position += stream.position;
        if (whence === {{{ cDefs.SEEK_END }}}) position += stream.node.size;
        if (position < 0) throw new FS.ErrnoError({{{ cDefs.EINVAL }}});
        return position;
      },
    },
  },
});
