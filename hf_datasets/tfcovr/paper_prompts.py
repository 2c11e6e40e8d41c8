"""The prompts of TF-CoVR as its appendices B and C print them, without their typeface."""

from typing import Final

from hf_datasets.tfcovr.labels import Sport

MODIFICATION_PROMPT: Final = """\
You are an expert in designing tasks that require understanding the transformation between two description, \
specifically for video descriptions. Your goal is to ensure that the instructions you provide are concise, accurate, \
and focused on the necessary modifications between the source and target description.

Instructions:
1. Analyze the given source and target description.
2. Identify the changes between the source and target description.
3. Write an instruction that describes only the transformation required to achieve the target description from the \
source.
4. Ensure the instruction is as short as possible, focusing on actions. Mention objects only when absolutely necessary.
5. Do not describe objects or actions common to both descriptions. Use pronouns when appropriate.
6. Your response should focus only on the transformation, without extraneous details or repetitions.

Remember:
- Keep the instruction concise and focus only on the transformation required.
- Avoid redundant details or describing elements unchanged between source and target descriptions.

In-Context Examples:

{examples}"""
"""Appendix B, "Modification Generation Prompt for FineGym". Of the one for FineDiving only the examples are printed: it
is taken to be the same."""
EXAMPLE_FORMS: Final = {
    "gymnastics": "Source Narration: {source}.\nTarget Narration: {target}.\nInstruction: {modification_text}",
    "diving": "Source Description: {source}\nTarget Description: {target}\nModification text: {modification_text}",
}
"""Appendix B: how its examples are written."""
SLIPS: Final = {
    "show 0.5 turn with piked salto backward.": "show 0.5 turn with spiked salto backward.",
    "show flic-flac with 1 turn and piked salto backward.": "show flic-flac with 1 turn and picked salto backward.",
}
"""Texts of `examples.json` that the appendix prints with a slip, where they first occur."""
PAPER_CAPTION_PROMPTS: Final[dict[Sport, str]] = {
    "gymnastics": """\
You are an expert gymnastics judge.

Your task is to provide a strictly formatted, concise technical caption for the gymnast's routine. Use official \
gymnastics vocabulary only (e.g., round-off, flic-flac, salto, tuck, pike, layout).

DO NOT describe emotions, strength, balance, or control.
DO NOT explain what it "shows" or "demonstrates."
DO NOT use generic verbs like "move", "flip", "spin", "pose", etc.

Include:
- Entry move (e.g., round-off)
- Main move (e.g., double back salto)
- Body position (e.g., tuck, layout, pike)
- Number of twists or somersaults (e.g., 1.5 twists, triple salto)
- Apparatus name if identifiable

Only output a single-line caption, no lists, no bullets, no extra sentences.

Format: [Technical move sequence with turns and position].
(Apparatus: [FX / VT / BB / UB / Unknown])

Examples:
- Round-off, flic-flac, double tuck salto with 1.5 twist. (Apparatus: FX)
- Back handspring to layout salto with full twist. (Apparatus: BB)
- Stretched salto backward with 2.5 twists. (Apparatus: VT)""",
    "diving": """\
You are an expert diving judge.

Your task is to provide a strictly formatted, concise technical caption for the diver's routine based on official \
diving terminology. Use terms defined by FINA and standard competition vocabulary.

DO NOT describe emotions, grace, beauty, or control. DO NOT narrate or explain what it "shows" or "demonstrates."
DO NOT use vague verbs like "moves", "flips", "spins", or any stylistic language.

Include:
- Takeoff direction (e.g., forward, backward, reverse, inward, armstand)
- Number of somersaults (e.g., 1.5, 2.5, 3.5)
- Number of twists (if any)
- Body position (tuck, pike, layout, free)
- Entry type if clear (e.g., vertical entry, feet-first)
- Platform or springboard (if inferable), e.g., 10m platform, 3m springboard

Only output a single-line caption, no bullets, no extra explanation.

Format:
[Takeoff type], [# somersaults] somersaults, [# twists if any] twists, [body position].
(Platform: [10m / 3m / Unknown])

Examples:
- Backward takeoff, 2.5 somersaults, tuck. (Platform: 10m)
- Reverse takeoff, 1.5 somersaults, 1 twist, pike. (Platform: 3m)
- Armstand, 2.5 somersaults, layout. (Platform: Unknown)""",
}
"""Appendix C, "VideoXL Caption Generation Prompt" for FineGym and for FineDiving."""
