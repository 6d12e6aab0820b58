// What one backend makes of a model, in a page: run once per backend, and compared by gpu_agreement.py.
//
// Evaluated in a page with the library in its global scope (`client`, `Endpoint`). Nothing is judged here.

async ({ model, backend, options, chats, queries, forced, prefixes, sentences }) => {
  const began = performance.now();
  const ref = await client.add(backend, Endpoint.local({ model, backend, ...options }));
  const loadMs = performance.now() - began;
  const greedy = { temperature: 0, maxTokens: 32 };
  const texts = [];
  for (const prompt of chats) {
    texts.push((await client.chat(ref, [{ role: "user", content: prompt }], greedy).response).text);
  }
  for (const prompt of queries) texts.push((await client.query(ref, prompt, greedy).response).text);

  // Teacher forcing: the text that both are asked about is one backend's own, after each of its tokens.
  const places = [...prefixes];
  if (forced) {
    let text = forced.prompt;
    const run = client.query(ref, text, { ...greedy, maxTokens: forced.tokens });
    for await (const batch of run.tokens) {
      places.push(text);
      text += batch.text;
    }
  }

  // The distribution of the next token behind each beginning of a text. One context key: each continues the last.
  const next = [];
  for (const prompt of places) {
    const { logprobs } = await client.query(ref, prompt, {
      ...greedy,
      maxTokens: 1,
      logprobs: true,
      topLogprobs: 20,
      contextKey: "prefixes",
    }).response;
    next.push(logprobs[0].top.map(({ tokenId, logprob }) => [tokenId, logprob]));
  }
  const vectors = sentences.length > 0 ? (await client.embed(ref, sentences, { normalize: true }).response).vectors : [];

  const { gpu, backend: used, heapBytes, memory, reasons } = client.capabilities(ref);
  let perToken = null;
  if (queries.length > 0) {
    const counters = async () => (await client.metrics(ref)).gpu ?? {};
    // Two lengths of the same answer: their difference is decoding alone.
    const prompt = queries.at(-1);
    const before = await counters();
    const long = await client.query(ref, prompt, { ...greedy, maxTokens: 24, contextKey: "count" }).response;
    const between = await counters();
    const short = await client.query(ref, prompt, { ...greedy, maxTokens: 8, contextKey: "count" }).response;
    const after = await counters();
    const tokens = long.usage.outputTokens - short.usage.outputTokens;
    const of = (name) => (2 * between[name] - before[name] - after[name]) / tokens;
    if (tokens > 0) perToken = Object.fromEntries(Object.keys(before).map((name) => [name, of(name)]));
    if (perToken) perToken.ms = long.stats.itlMs.p50;
  }
  await client.remove(ref);
  return { texts, places, next, vectors, loadMs, perToken, gpu, backend: used, heapBytes, memory, reasons };
}
