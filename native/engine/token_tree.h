// A radix tree over token sequences: which of many stored ones shares the longest beginning with a prompt.
//
// A tree and not a chain of block hashes: it finds the shared length to the very token, it compares the
// tokens themselves, and one walk costs the length of the prompt, however many sequences there are.
// Used by prefix_store.cpp; knows nothing of states, only the numbers of the entries that have them.
#pragma once

#include "engine/request.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

namespace headrace {

class TokenTree {
  public:
    // A node with an entry stays where it is until its entry is erased. A leaf always has an entry.
    struct Node {
        std::vector<Token>                     edge;       // tokens between the parent and here
        size_t                                 depth  = 0; // tokens between the root and here
        uint64_t                               entry  = 0; // 0: none
        Node *                                 parent = nullptr;
        std::map<Token, std::unique_ptr<Node>> children; // by the first token of their edge
    };

    struct Walk {
        size_t       shared = 0;       // the longest beginning of the tokens that any sequence has too
        const Node * below  = nullptr; // all sequences at or below this node share that much; null: none do
        const Node * whole =
            nullptr; // the longest sequence that is wholly a prefix of the tokens; null: none
    };

    TokenTree() = default;
    ~TokenTree();
    TokenTree(TokenTree &&)             = delete;
    TokenTree & operator=(TokenTree &&) = delete;

    // The node of exactly this sequence, made if need be. Empty: not allowed.
    Node * insert(std::span<const Token> tokens, uint64_t entry);

    // The node with an entry for exactly this sequence; null: there is none.
    const Node * find(std::span<const Token> tokens) const;

    Walk walk(std::span<const Token> tokens) const;

    // Takes the entry off its node, and away what was there only for it.
    void erase(Node * node);

    static std::vector<Token> path(const Node * node);

    // The nearest node above that has an entry; null: none has.
    static const Node * prefix_of(const Node * node);

    bool empty() const { return root_.children.empty(); }

  private:
    Node root_;
};

} // namespace headrace
